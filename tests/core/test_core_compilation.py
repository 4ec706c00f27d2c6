"""A missing compiler is distinguished from code that is wrong."""

import pytest

from hpml_lab.core.timing.compilation import compiler_missing, no_compiler


@pytest.mark.parametrize(
    "text, missing",
    [
        ("InvalidCxxCompiler: No working C++ compiler found in torch._inductor.config.cpp.cxx: (None, 'g++')", True),
        ("Failed to find C compiler. Please specify via CC environment variable", True),
        ("CppCompileError: C++ compile error: 'y' was not declared", False),
    ],
)
def test_only_a_missing_compiler_is_one(text, missing):
    assert no_compiler(RuntimeError(text)) == missing


def test_the_error_names_what_was_missing_and_how_to_install_it():
    error = compiler_missing(RuntimeError("\nInvalidCxxCompiler: none\nand more"))
    assert "(InvalidCxxCompiler: none)" in str(error) and "apt-get install g++" in str(error)
