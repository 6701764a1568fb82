"""Programs that run in forks of a server (``tests/warm``)."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from warm.plugin import HERE, PYTHON

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the server is started on Linux")


class Served:
    """A server of this test alone.

    Attributes:
        folder: Of its socket and the programs.
        process: The server.
    """

    def __init__(self, folder: Path):
        self.folder = folder
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(folder / "0"))
            listener.listen(8)
            words = [PYTHON, str(HERE / "server.py"), str(listener.fileno())]
            self.process = subprocess.Popen(
                words, stdin=subprocess.PIPE, pass_fds=[listener.fileno()]
            )
        (folder / "waits.py").write_text(
            "import time\nprint('begun', flush=True)\ntime.sleep(60)\n"
        )
        (folder / "writes.py").write_text("import os, sys\nos.write(int(sys.argv[1]), b'heard')\n")

    def begin(self, program: str, *words: str, file: int | None = None) -> subprocess.Popen[bytes]:
        """Start a program; ``file`` is the number of a further file that it is given, which is its
        output.
        """
        client = [
            PYTHON,
            "-IS",
            str(HERE / "client.py"),
            str(self.folder),
            PYTHON,
            str(self.folder / program),
            *words,
        ]
        environment = {**os.environ, "PMI_RANK": "0"}
        environment.pop("PMI_FD", None)
        if file is not None:
            environment["PMI_FD"] = str(file)
            client = [
                PYTHON,
                "-ISc",
                f"import os, sys; os.dup2(1, {file}); os.execv(sys.argv[1], sys.argv[1:])",
                *client,
            ]
        return subprocess.Popen(client, stdout=subprocess.PIPE, env=environment)

    def files(self) -> set[int]:
        """Numbers of the server's open files."""
        return {int(name) for name in os.listdir(f"/proc/{self.process.pid}/fd")}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    server = Served(tmp_path_factory.mktemp("served"))
    yield server
    server.process.send_signal(signal.SIGCONT)
    server.process.communicate()


def begun(program: subprocess.Popen[bytes]) -> None:
    assert program.stdout is not None
    assert program.stdout.readline() == b"begun\n"


def test_programs_of_tests_are_forks():
    assert sys.executable != PYTHON


@pytest.mark.cold
def test_programs_of_cold_tests_start_the_interpreter():
    assert sys.executable == PYTHON


def test_a_program_keeps_its_files_when_another_one_was_killed(served):
    begun(first := served.begin("waits.py"))
    before = served.files()
    begun(killed := served.begin("waits.py"))
    for number in served.files() - before:
        # the server hears of both at once, and first of the end; the times are many times what it
        # takes to stop and to ask
        served.process.send_signal(signal.SIGSTOP)
        time.sleep(0.3)
        killed.kill()
        killed.wait()
        other = served.begin("writes.py", str(number), file=number)
        time.sleep(0.5)
        served.process.send_signal(signal.SIGCONT)
        assert other.communicate(timeout=30)[0] == b"heard"
        assert other.returncode == 0
        begun(killed := served.begin("waits.py"))
    for program in (first, killed):
        program.kill()
        program.communicate()


def test_a_program_that_is_killed_while_it_asks_leaves_no_files(served):
    begun(first := served.begin("waits.py"))
    served.process.send_signal(signal.SIGSTOP)
    reads, writes = os.pipe()
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(served.folder / "0"))
        # 8 bytes are announced
        socket.send_fds(client, [(8).to_bytes(8, "little")], [writes])
    os.close(writes)
    served.process.send_signal(signal.SIGCONT)
    # all that write are closed
    assert select.select([reads], [], [], 30)[0]
    assert os.read(reads, 1) == b""
    os.close(reads)
    first.kill()
    first.communicate()


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("last", "code", "output"),
    [
        ("", 0, b"begun\nend\n"),
        ("sys.exit()", 0, b"begun\nend\n"),
        ("sys.exit(3)", 3, b"begun\nend\n"),
        ("sys.exit('a reason')", 1, b"begun\nend\n"),
        ("1 / 0", 1, b"begun\nend\n"),
        ("raise KeyboardInterrupt", -signal.SIGINT, b"begun\nend\n"),
        ("Timer(0.1, print, ['late']).start()", 0, b"begun\nlate\nend\n"),
        ("sys.stdout.flush(); sys.stdout = open('/dev/full', 'w')", 120, b"begun\n"),
    ],
)
def test_a_program_ends_as_the_interpreter_ends_it(served, last, code, output):
    """Threads end, then functions at exit are called, and what was printed is written."""
    head = "import atexit, os, sys\nfrom threading import Timer\natexit.register(print, 'end')\n"
    (served.folder / "ends.py").write_text(f"{head}print('begun')\n{last}\n")
    program = served.begin("ends.py")
    assert program.communicate(timeout=30)[0] == output
    assert program.returncode == code
