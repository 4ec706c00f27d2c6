"""From detections to the patient: sick or not, by a classifier that is fitted on patients the network has not seen.

A network that is trained long enough knows its own training patients by heart, and scores there as it does nowhere else. A
classifier fitted there would expect such scores of new patients too.
"""

from collections.abc import Sequence

import numpy as np

from hpml_lab.core.system.errors import LabError

BEST = 3  # scores that are looked at


def patient_features(detections: np.ndarray) -> np.ndarray:
    """(5,): the three best scores (0 where there are fewer), the sum of all, and the largest score · radius in mm."""
    scores, radii = detections[:, 4], detections[:, 3]
    best = np.zeros(BEST)
    best[: min(BEST, len(scores))] = np.sort(scores)[::-1][:BEST]
    return np.array([*best, scores.sum(), (scores * radii).max(initial=0.0)])


def fit_patients(detections: Sequence[np.ndarray], sick: Sequence[bool]):
    """A scikit-learn classifier (standardized features, support vector machine) of patients by their detections (n, 5)."""
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    from sklearn.svm import SVC

    if len(set(map(bool, sick))) < 2:
        raise LabError("patients: all are sick, or none is: there is nothing to learn.", "Give patients of both kinds.")
    classifier = make_pipeline(StandardScaler(), SVC(class_weight="balanced"))
    return classifier.fit([patient_features(found) for found in detections], np.array(sick, bool))


def classify_patients(classifier, detections: Sequence[np.ndarray]) -> np.ndarray:
    """Whether each patient is sick, bool, by the detections (n, 5) of each."""
    return classifier.predict([patient_features(found) for found in detections])
