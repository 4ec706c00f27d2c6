"""LabError, on its way out of a worker process."""

import pickle

from hpml_lab.core.system.errors import LabError


def test_an_error_keeps_its_two_sentences_when_it_is_pickled():
    error = pickle.loads(pickle.dumps(LabError("The file is damaged.", "Fetch it again.")))
    assert (error.problem, error.fix) == ("The file is damaged.", "Fetch it again.")
    assert str(error) == "The file is damaged. Fetch it again."
