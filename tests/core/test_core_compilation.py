"""A missing compiler is distinguished from code that is wrong, and each processor has its own compiled kernels."""

import os

import pytest

from hpml_lab.core.system import machine
from hpml_lab.core.timing.compilation import compiler_missing, kernels_of_this_processor, no_compiler


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


def cache_folder():
    with kernels_of_this_processor():
        return os.environ["TORCHINDUCTOR_CACHE_DIR"]


@pytest.mark.parametrize("shared", ["home", None])
def test_another_processor_finds_no_kernel_of_this_one_where_they_share_a_folder(shared, monkeypatch):
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)
    if shared:
        monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", shared)
    here = cache_folder()
    assert here == cache_folder() and os.environ.get("TORCHINDUCTOR_CACHE_DIR") == shared
    monkeypatch.setattr(machine, "cpu_description", lambda: "an older processor: fpu sse2")
    older = cache_folder()
    monkeypatch.setattr("torch.backends.cpu.get_cpu_capability", lambda: "none")  # as ATEN_CPU_CAPABILITY does
    assert len({here, older, cache_folder()}) == 3 and len({os.path.dirname(folder) for folder in (here, older)}) == 1


def test_a_block_within_a_block_uses_the_same_folder():
    with kernels_of_this_processor():
        assert cache_folder() == os.environ["TORCHINDUCTOR_CACHE_DIR"]
