"""`hpml-lab profile` runs whatever `python` runs: exit code, stdout and stderr are what they are without it."""

import os
import py_compile
import re
import signal
import subprocess
import sys
import textwrap
import time
import zipapp

import pytest

from hpml_lab.cli import main
from hpml_lab.core.system.errors import LabError
from hpml_lab.core.system.installed import find_tool
from hpml_lab.core.system.programs import python_environment
from hpml_lab.profilers import script_profile
from hpml_lab.profilers.at_start import sitecustomize
from hpml_lab.profilers.script_profile import check_script, profile_script

SEES = """
import os, sys
main, frame = sys.modules["__main__"], sys._getframe()
simple = ("__name__", "__file__", "__package__", "__cached__", "__doc__")
print(sys.argv, sys.orig_argv, sys.path, sys.flags, sys._xoptions, sys.warnoptions, sys.getprofile(), sys.gettrace())
print({name: vars(main)[name] for name in simple if name in vars(main)}, type(__loader__).__name__, type(__builtins__).__name__)
print(__spec__ and (__spec__.name, __spec__.origin, __spec__.parent), main.__dict__ is globals(), sorted(globals()))
print({name: value for name, value in os.environ.items() if name != "_"}, sorted(sys.modules), sorted(sys.path_importer_cache))
finders = [type(finder).__name__ for finder in sys.meta_path]
print([name for name in finders if name != "_Torch"])  # the one trace, until torch is imported
while frame := frame.f_back:
    print(frame.f_code.co_filename, frame.f_code.co_name)
sys.exit(5)
"""
LATE = """
import atexit, pickle, sys, threading
class Thing: pass
def late():
    threading.main_thread().join()
    print("the main thread is over", Thing.__name__, threading.active_count(), len(pickle.dumps(Thing())))
threading.Thread(target=late).start()
atexit.register(lambda: print("atexit", sys.modules["__main__"].Thing is Thing, sys.getprofile(), threading.active_count()))
class Last:
    def __del__(self): print("collected")
last = Last()
1 / 0
"""
# What each program is for -> its files, and the words after `python`. Each of them is run plain and under the profiler.
PROGRAMS = {
    "file": ({"x.py": SEES}, "./x.py a -m b"),
    "absolute": ({"x.py": SEES}, "FOLDER/x.py"),
    "no .py": ({"tool": SEES}, "tool"),
    "folder": ({"app/__main__.py": SEES, "app/helper.py": ""}, "app a"),
    "folder without __main__": ({"app/x.py": ""}, "app"),
    "zip application": ({"app/__main__.py": "import helper\n" + SEES, "app/helper.py": "print('helps')"}, "app.pyz a"),
    "package in an archive": ({"app/__main__.py": "", "app/sub/__main__.py": SEES}, "app.pyz/sub a"),
    "zip with a first line": ({"app/__main__.py": SEES}, "first.pyz"),
    "compiled": ({"x.py": SEES}, "x.pyc a"),
    "link": ({"elsewhere/x.py": "import helper\n" + SEES, "elsewhere/helper.py": ""}, "link.py"),
    "module": ({"pack/__init__.py": "print('init')", "pack/inner.py": "from . import __name__\n" + SEES}, "-m pack.inner -m a"),
    "package": ({"pack/__init__.py": "", "pack/__main__.py": SEES}, "-m pack"),
    "namespace": ({"pack/inner/x.py": SEES}, "-m pack.inner.x"),
    "no such module": ({}, "-m pack.inner"),
    "package without __main__": ({"pack/__init__.py": ""}, "-m pack"),
    "module that raises": ({"pack/__init__.py": "", "pack/x.py": "1 / 0"}, "-m pack.x"),
    "package that raises": ({"pack/__init__.py": "1 / 0", "pack/x.py": ""}, "-m pack.x"),
    "pickles": (
        {
            "pack/__init__.py": "",
            "pack/x.py": """
        import multiprocessing, pickle
        class Thing: pass
        def work(thing): return type(thing).__module__
        if __name__ == "__main__":
            print(pickle.loads(pickle.dumps(Thing())).__class__ is Thing, __spec__.name)
            with multiprocessing.get_context("spawn").Pool(1) as pool: print(pool.map(work, [Thing()]))
    """,
        },
        "-m pack.x",
    ),
    "code": ({}, ["-c", SEES, "a"]),
    "stdin": ({"STDIN": SEES}, "- a"),
    "options": ({"x.py": SEES}, "-OO -X dev -Xutf8 -W error -P -- x.py -O"),
    "warnings": ({"x.py": "import warnings\nwarnings.warn('as asked')\nopen('x.py')\nprint('on')"}, "-X dev x.py"),
    "syntax": ({"x.py": "a = 1\nb = (\n"}, "x.py"),
    "bytes": ({"x.py": "a = 'caf\xe9'"}, "x.py"),
    "raises": ({"x.py": "def f(): raise ValueError('as asked') from KeyError(1)\nf()"}, "x.py"),
    "exception group": ({"x.py": "raise ExceptionGroup('all', [ValueError(1), KeyError(2)])"}, "x.py"),
    "text": ({"x.py": "import sys\nsys.exit('no such thing')"}, "x.py"),
    "exit of nothing": ({"x.py": "import sys\nsys.exit()"}, "x.py"),
    "large code": ({"x.py": "import sys\nsys.exit(300)"}, "x.py"),
    "exit subclass": ({"x.py": "class Stop(SystemExit): pass\nraise Stop(4)"}, "x.py"),
    "_exit": ({"x.py": "import os\nprint('lost')\nos._exit(9)"}, "x.py"),
    "interrupt": ({"x.py": "raise KeyboardInterrupt"}, "x.py"),
    "killed": ({"x.py": "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)"}, "x.py"),
    "excepthook": (
        {
            "x.py": """
        import sys
        sys.excepthook = lambda *how: print("mine", how[2].tb_next, how[2].tb_frame.f_back)
        1 / 0
    """
        },
        "x.py",
    ),
    "too deep": (
        {
            "x.py": """
        def f(n): return n and f(n - 1)
        print(f(990))
        f(1000)
    """
        },
        "x.py",
    ),
    "after the end": ({"x.py": LATE}, "x.py"),
    "after a module's end": ({"x.py": LATE}, "-m x"),
    "profiles itself": (
        {
            "x.py": """
        import cProfile, pstats, sys
        def f(): pass
        with cProfile.Profile() as own: f()
        print(sorted(name for _, _, name in pstats.Stats(own).stats), sys.getprofile())
        sys.setprofile(None); sys.settrace(None)
    """
        },
        "x.py",
    ),
    "runs cProfile": ({"x.py": "print('ran')"}, "-m cProfile -o stats x.py"),
    "own modules": (
        {
            "x.py": "import json, typing, types, threading\nprint(json.n, typing.n, types.n)",
            "json.py": "n = 1",
            "typing.py": "n = 2",
            "types.py": "n = 3",
        },
        "x.py",
    ),
    "own sitecustomize": (
        {"x.py": "import sys\nprint(sys.modules['sitecustomize'].n)", "lib/sitecustomize.py": "n = 7\nprint('custom')"},
        "x.py",
    ),
    "sitecustomize that fails": ({"x.py": "print('on')", "lib/sitecustomize.py": "1 / 0"}, "x.py"),
    "sitecustomize that misses a module": ({"x.py": "print('on')", "lib/sitecustomize.py": "import not_there"}, "x.py"),
    "execs itself": (
        {
            "x.py": """
        import os, sys
        if "AGAIN" in os.environ: print("again", sys.argv, sys.orig_argv[1:], "PYTHONPATH" in os.environ); sys.exit(4)
        os.environ["AGAIN"] = "1"
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])
    """
        },
        "x.py a",
    ),
    "starts itself": (
        {
            "app/__main__.py": """
        import os, subprocess, sys
        if "AGAIN" in os.environ: print("again", sys.argv, sys.orig_argv[1:]); sys.exit(4)
        sys.exit(subprocess.call([sys.executable, *sys.orig_argv[1:]], env={**os.environ, "AGAIN": "1"}))
    """
        },
        "app a",
    ),
    "forks": (
        {
            "x.py": """
        import atexit, os, sys
        atexit.register(lambda: print("ends", flush=True))
        if child := os.fork(): print(os.waitpid(child, 0)[1], flush=True)
        else: print("child", flush=True); sys.exit(3)
    """
        },
        "x.py",
    ),
    "closed streams": ({"x.py": "import os, sys\nos.close(1); sys.stdout = None\nprint('nowhere')\nsys.exit(6)"}, "x.py"),
    "descriptors": ({"x.py": "import os\nprint(os.open('x.py', os.O_RDONLY))"}, "x.py"),
    "own importer": (
        {
            "x.py": """
        import sys
        class Finder:
            def find_spec(*words): print(words[1])
        sys.meta_path.insert(0, Finder())
        import nothing
    """
        },
        "x.py",
    ),
}


@pytest.fixture
def both(tmp_path, monkeypatch, capfd):
    """(name of a program) -> how it ended and what it wrote, plain and under the profiler."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "STDIN").touch()

    def run(name):
        files, words = PROGRAMS[name]
        words = words.replace("FOLDER", str(tmp_path)).split() if isinstance(words, str) else words
        for path, text in files.items():
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).write_bytes(textwrap.dedent(text).encode("latin-1"))
        if (tmp_path / "app" / "__main__.py").exists():
            zipapp.create_archive("app", "app.pyz")
            zipapp.create_archive("app", "first.pyz", interpreter="/usr/bin/env python3")
        if "x.pyc" in words:
            py_compile.compile("x.py", "x.pyc")
        if "link.py" in words:
            os.symlink("elsewhere/x.py", "link.py")
        if "lib/sitecustomize.py" in files:
            monkeypatch.setenv("PYTHONPATH", "lib:")
        with open("STDIN", "rb") as stdin:
            done = subprocess.run([sys.executable, *words], stdin=stdin, env=os.environ, capture_output=True, text=True)
        before = os.dup(0)
        with open("STDIN", "rb") as stdin:
            os.dup2(stdin.fileno(), 0)
        try:
            code = profile_script(words).exit_code
        finally:
            os.dup2(before, 0)
            os.close(before)
        written = capfd.readouterr()
        return (code, written.out, written.err), (done.returncode, done.stdout, done.stderr)

    return run


@pytest.mark.parametrize("name", PROGRAMS)
def test_without_py_spy_it_ends_and_prints_as_without_the_profiler(both, monkeypatch, name):
    monkeypatch.setattr(script_profile, "find_tool", lambda name: None)
    profiled, plain = both(name)
    assert profiled == plain


@pytest.mark.environment("Python and py-spy once a program", files=("hpml_lab/profilers",))
@pytest.mark.parametrize("name", PROGRAMS)
def test_under_py_spy_it_ends_and_prints_as_without_the_profiler(both, name):
    profiled, plain = both(name)
    assert profiled == plain


@pytest.mark.skipif(not find_tool("py-spy"), reason="py-spy is not installed")
def test_all_of_a_large_unbuffered_write_arrives(tmp_path, monkeypatch):
    """Python drops what such a write leaves over when it is interrupted, and py-spy interrupted it at every sample."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.py").write_text("import sys\nfor _ in range(5): sys.stdout.write('x' * 8_000_000)\n")
    command = [sys.executable, "-m", "hpml_lab", "profile", "--operator-seconds", "0", "--rate", "200", "x.py"]
    with subprocess.Popen(command, env=python_environment() | {"PYTHONUNBUFFERED": "1"}, stdout=subprocess.PIPE) as process:
        arrived = 0
        while part := process.stdout.read(1 << 16):
            arrived += len(part)
            time.sleep(0.0005)
    assert (arrived, process.returncode) == (40_000_000, 0)


REFUSED = ("-I x.py", "-E x.py", "-S x.py", "-OIm x", "-Xdev -W error -Es x.py")


@pytest.mark.parametrize("words", REFUSED)
def test_an_option_that_keeps_the_profiler_out_is_refused_before_anything_starts(tmp_path, monkeypatch, capfd, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.py").write_text("open('ran', 'w')")
    assert main(["profile", "--", *words.split()]) == 2
    assert re.search(r"Python's option -[EIS] .*\n  Leave -[EIS] out\.\n$", capfd.readouterr().err)
    assert os.listdir() == ["x.py"]


@pytest.mark.parametrize(
    "words", ["-c pass", "-cpass", "-Ocpass", "-Wd -X dev -c pass", "-m x", "-OOmx", "-- x.py", "-Wd -- -x.py", "-"]
)
def test_the_options_of_python_are_read_as_python_reads_them(tmp_path, monkeypatch, words):
    monkeypatch.chdir(tmp_path)
    for name in ("x.py", "-x.py"):
        (tmp_path / name).touch()
    check_script(words.split())
    for absent in ("y.py", "-W d y.py", "-Wd y.py", "-O -- y.py", "--check-hash-based-pycs never y.py"):
        with pytest.raises(LabError, match="no script 'y.py'"):
            check_script(absent.split())


def test_a_parent_that_was_killed_holds_no_script_up(tmp_path):
    """It never says who samples."""
    (tmp_path / "x.py").write_text("import os\nprint(os.environ.get('PYTHONPATH'), os.environ.get('HPML_LAB_AT_START'))")
    environment = {**os.environ, sitecustomize.VARIABLE: f"{os.getpid()} 25 0.0 0 {tmp_path}", "PYTHONPATH": sitecustomize.HERE}
    starts = f"import subprocess, sys\nsubprocess.Popen([sys.executable, 'x.py'], env={environment!r})"  # and ends at once
    done = subprocess.run([sys.executable, "-c", starts], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert (done.stdout, done.stderr) == ("None None\n", "") and (tmp_path / sitecustomize.STARTED).exists()


@pytest.mark.parametrize("gone", [False, True])
def test_a_script_does_not_hear_that_the_folder_of_its_samples_is_gone(tmp_path, gone):
    """As one that empties /tmp, becomes another user, or finds the disk full; it may be gone when the script begins."""
    (tmp_path / "x.py").write_text("import shutil\nshutil.rmtree('seen', ignore_errors=True)\nprint('ran')")
    if not gone:
        (tmp_path / "seen").mkdir()
        (tmp_path / "seen" / sitecustomize.UNSEEN).touch()
    settings = f"{os.getpid()} 25 0.0 0 {tmp_path / 'seen'}"
    environment = {**os.environ, sitecustomize.VARIABLE: settings, "PYTHONPATH": sitecustomize.HERE}
    done = subprocess.run([sys.executable, "x.py"], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
    assert (done.stdout, done.stderr, done.returncode) == ("ran\n", "", 0)


def test_a_ctrl_c_before_the_script_begins_ends_it_as_python_ends(tmp_path):
    (tmp_path / "x.py").write_text("print('ran')")
    environment = {**os.environ, sitecustomize.VARIABLE: f"{os.getpid()} 25 0.0 0 {tmp_path}", "PYTHONPATH": sitecustomize.HERE}
    process = subprocess.Popen(
        [sys.executable, "x.py"], cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    while not (tmp_path / sitecustomize.STARTED).exists() and process.poll() is None:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    assert (*process.communicate(timeout=300), process.returncode) == ("", "", -signal.SIGINT)
