"""A signal reaches the program once, whether it was sent to the tool, to the whole process group, or by the terminal."""

import os
import pty
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import psutil
import pytest

from hpml_lab.core.system.programs import python_environment

BOTTLENECK = [sys.executable, "-m", "hpml_lab", "bottleneck", "--", sys.executable, "-u", "job.py"]


def started(tmp_path, source, command=BOTTLENECK, **options):
    (tmp_path / "job.py").write_text(textwrap.dedent(source))
    return subprocess.Popen(command, cwd=tmp_path, env=python_environment(), **options)


@pytest.mark.skipif(not hasattr(signal, "SIGRTMIN"), reason="two other signals may arrive as one")
def test_a_signal_for_the_whole_group_reaches_the_program_once(tmp_path):
    """As a shell, a cluster or a container sends it."""
    source = """
        import os, signal
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGRTMIN, signal.SIGRTMAX])
        print("ready")
        while signal.sigwait([signal.SIGRTMIN, signal.SIGRTMAX]) == signal.SIGRTMIN:
            print("saves")
    """
    with started(tmp_path, source, stdout=subprocess.PIPE, text=True, process_group=0) as process:
        assert process.stdout.readline() == "ready\n"
        os.killpg(process.pid, signal.SIGRTMIN)
        assert process.stdout.readline() == "saves\n"
        process.send_signal(signal.SIGRTMAX)  # to the tool alone, which handles the lower number first
        assert process.communicate(timeout=300) == ("", None) and process.returncode == 0


def test_a_program_that_ends_the_rest_of_its_group_lives_on(tmp_path):
    source = """
        import os, signal, sys
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGPROF])
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        os.killpg(0, signal.SIGTERM)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(os.getppid(), signal.SIGPROF)  # once it comes back, the one before would have come
        sys.exit(7 if signal.sigwait([signal.SIGPROF]) else 0)
    """
    with started(tmp_path, source, process_group=0) as process:
        assert process.wait(300) == 7


@pytest.mark.parametrize("by", ["kill", "Ctrl-C"])
def test_at_a_terminal_an_interrupt_reaches_the_program_once(tmp_path, by):
    source = """
        import signal, sys
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT, signal.SIGUSR2])
        print("ready")
        while signal.sigwait([signal.SIGINT, signal.SIGUSR2]) == signal.SIGINT:
            print("interrupted")
        sys.exit(7)
    """
    ours, its = pty.openpty()
    # The first terminal that the leader of a session opens is the session's.
    command = ["sh", "-c", f'exec "$@" <{os.ttyname(its)}', "sh", *BOTTLENECK]
    with started(tmp_path, source, command, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        assert process.stdout.readline() == "ready\n"
        os.write(ours, b"\3") if by == "Ctrl-C" else process.send_signal(signal.SIGINT)
        assert process.stdout.readline() == "interrupted\n"
        process.send_signal(signal.SIGUSR2)
        assert process.communicate(timeout=300) == ("", None) and process.returncode == 7
    os.close(ours)
    os.close(its)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="no other system shows what a process ignores")
@pytest.mark.parametrize("tool", ["monitor", "bottleneck"])
@pytest.mark.parametrize("begins", ["", "trap '' PIPE HUP; "])
def test_a_program_that_is_not_python_ignores_what_it_would_ignore_without_us(tmp_path, tool, begins):
    """Python ignores PIPE and XFSZ for itself: a program that began so would not end when nobody reads from it any more."""
    ours = f"{sys.executable} -m hpml_lab {tool} -- "
    program = (
        "bash -c 'grep SigIgn /proc/self/status; set -o pipefail; yes | head -1; echo $?; ulimit -f 4; yes > big'; echo $?"
    )
    plain, watched = (
        subprocess.run(
            ["sh", "-c", begins + command], cwd=tmp_path, env=python_environment(), capture_output=True, text=True, timeout=300
        ).stdout
        for command in (program, ours + program)
    )
    assert watched == plain and plain.endswith("y\n1\n153\n" if begins else "y\n141\n153\n")


def test_a_signal_is_passed_on_where_the_process_that_tells_whose_it_is_is_dead(tmp_path):
    """A message to it raised SIGPIPE, which was asked about in turn, without an end."""
    source = """
        import signal, sys
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
        print("ready")
        signal.sigwait([signal.SIGUSR1])
        sys.exit(7)
    """
    with started(tmp_path, source, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "ready\n"
        witness = next(child for child in psutil.Process(process.pid).children() if "-S" in child.cmdline())
        witness.kill()
        while witness.is_running() and witness.status() != psutil.STATUS_ZOMBIE:
            time.sleep(0.02)
        process.send_signal(signal.SIGUSR1)
        try:
            said = process.communicate(timeout=60)[1]
        finally:
            process.kill()
    assert process.returncode == 7 and "Traceback" not in said and "incomplete" not in said
