"""The optimizer lab's page as one JavaScript module, with the rules, surfaces and schedules translated from their own Python.

`lab_module` puts the translations into `engine.js`, which computes paths and maps; `lab.mjs`, the page, follows.
"""

import ast
import inspect
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from hpml_lab.core.show.javascript import OPERATORS, Translation
from hpml_lab.landscape import stability, surfaces
from hpml_lab.landscape.optimizer_lab import lab_paths
from hpml_lab.landscape.optimizer_lab.details import MEMORY_REACH, RATE_REACH, STATE_SYMBOLS, second
from hpml_lab.landscape.optimizer_lab.figure import form_of, look
from hpml_lab.optim.formulas.by_name import FORMULAS
from hpml_lab.optim.formulas.rules import lecture_nesterov

HERE = Path(__file__).parent


def expression(node: ast.expr) -> Any:
    """An expression as nested lists for the step table, which shows it with its numbers: ["+", "s.v", ["*", "lr", "g"]]."""
    if isinstance(node, ast.BinOp):
        return [OPERATORS[type(node.op)], expression(node.left), expression(node.right)]
    if isinstance(node, ast.Call):
        return [node.func.id, *map(expression, node.args)]
    if isinstance(node, ast.IfExp):
        return ["if", *map(expression, (node.test.left, node.test.comparators[0], node.body, node.orelse))]
    return node.value if isinstance(node, ast.Constant) else ast.unparse(node)


def _step_lines(lines: Iterable[tuple[str, str]]) -> list[dict]:
    found = []
    for formula, code in lines:
        statement = ast.parse(code).body[0]
        found.append({"formula": formula, "code": code, "to": ast.unparse(statement.targets[0])})
        found[-1]["value"] = expression(statement.value)
    return found


def _object(**entries: str) -> str:
    return "{" + ", ".join(f"{key}: {text}" for key, text in entries.items()) + "}"


def _rules(translation: Translation) -> dict[str, str]:
    found = {}
    for name, formula in FORMULAS.items():
        style, plain = look(name), name in lab_paths.PLAIN_RULES
        line = style["linestyle"]
        dash = {"-": (), "--": (4, 2), "-.": (5, 2, 1, 2)}[line] if isinstance(line, str) else line[1]
        about = dict(title=formula.title, form=form_of(name), color=style["color"], dash=dash, marker=style["marker"])
        about |= dict(
            state=formula.state, hyper=formula.defaults, ahead=formula.step is lecture_nesterov, layerwise=formula.layerwise
        )
        about |= dict(
            kind=name.removeprefix("lecture_") if plain else None, lines=_step_lines(formula.lines), second=second(name)
        )
        texts = {key: json.dumps(value, ensure_ascii=False) for key, value in about.items()}
        found[name] = _object(**texts, step=translation.function(formula.step, options=True, layer=formula.layerwise))
    return found


def _surfaces(translation: Translation, names: Iterable[str]) -> dict[str, str]:
    found = {}
    for name in names:
        surface = lab_paths.surface_named(name)
        about = {
            key: getattr(surface, key) for key in ("title", "formula", "window", "minima", "start", "eigenvalues", "noise")
        }
        about["rates"] = {rule: lab_paths.first_rate(surface, rule) for rule in FORMULAS}
        texts = {key: json.dumps(value, ensure_ascii=False) for key, value in about.items()}
        functions = {key: translation.function(getattr(surface, key)) for key in ("value", "gradient")}
        found[name] = _object(**texts, **functions)
    return found


def _table(name: str, entries: dict[str, str]) -> str:
    return f"const {name} = {{\n" + "".join(f"  {json.dumps(key)}: {text},\n" for key, text in entries.items()) + "};\n"


def engine(names: Iterable[str] = ()) -> str:
    """`engine.js` with everything translated: a function `engine()` that returns rules, surfaces, paths and maps."""
    translation = Translation()
    rules, grounds = _rules(translation), _surfaces(translation, dict.fromkeys([*surfaces.SURFACES, *names]))
    helpers: dict[str, Callable] = {"unit_noise": inspect.unwrap(surfaces.unit_noise)}
    helpers["largest_stable_rate"] = stability.largest_stable_rate
    rates = {name: translation.function(factor) for name, factor in lab_paths.SCHEDULES.items()}
    texts = {name: translation.function(function) for name, function in helpers.items()}
    text = "".join(f"const {name} = {code};\n" for name, code in {**translation.functions, **texts}.items())
    text += f"const DIVERGED = {lab_paths.DIVERGED}, POWERS = {translation.powers}, LONGEST = {lab_paths.MOST_STEPS + 1};\n"
    text += f"const RATE_REACH = {json.dumps(RATE_REACH)}, MEMORY_REACH = {json.dumps(MEMORY_REACH)};\n"
    text += _table("RULES", rules) + _table("SURFACES", grounds) + _table("SCHEDULES", rates)
    return (HERE / "engine.js").read_text(encoding="utf-8").replace("/* translated from Python */", text)


def lab_module(names: Iterable[str] = ()) -> str:
    """The whole page as one module without imports: `mount(el, options)`, and anywidget's `render`.

    names  of surfaces besides those of SURFACES, such as "quadratic-37"
    """
    symbols = f"const STATE = {json.dumps(STATE_SYMBOLS, ensure_ascii=False)};\n"
    return engine(names) + symbols + (HERE / "lab.mjs").read_text(encoding="utf-8")
