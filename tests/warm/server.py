"""Starts programs in forks of a process that has imported GraphTheta and has trained: ``server.py
LISTENER``, a socket by number.

A test that starts a program spends most of its time on imports and on loading compiled kernels, the
same in every process. Here ``client.py`` stands in for the interpreter: it hands its words,
environment and open files to this server, whose fork runs the program in their place. The server
ends with its standard input.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import fcntl
import gc
import importlib
import marshal
import os
import runpy
import selectors
import signal
import socket
import sys
import threading
import types
from collections.abc import Callable, Mapping
from typing import Any

import numba
from communities import import_networkit
from reference import VARIABLE

from graphtheta.engine.comm.serial import SerialComm
from graphtheta.ops.edge.backend import fused
from graphtheta.train.loop.trainer import Trainer

# what a job imports before its first epoch; each of these imports many more
MODULES = (
    "graphtheta.cli.command",
    "graphtheta.train.loop.session",
    "graphtheta.graph.data.validation",
    "scipy.sparse",
    "tqdm",
    "mpi4py",
)
# a job whose kernels most jobs need
JOB: dict[str, Any] = {
    "dataset": "sbm:n_nodes=200,n_edges=1200,classes=3,features=4",
    "hidden": 4,
    "epochs": 1,
    "backend": "reference",
    "strategy": "mini",
    "batch_size": 60,
    "fanout": "3,3",
}
CACHE = "GRAPHTHETA_CACHE"
# beyond the numbers of files of any program
ABOVE = 500
SIZE = 8


class Request:
    """A program to start.

    Attributes:
        interpreter: What stands in for it.
        words: After the interpreter.
        folder, variables, umask: Of its process.
        files: Numbers that its open files have in its process, in the order of ``received``.
        received: Numbers that they have here.
    """

    def __init__(self, connection: socket.socket):
        size, self.received, _, _ = socket.recv_fds(connection, SIZE, 16)
        try:
            with connection.makefile("rb") as file:
                data = file.read(int.from_bytes(size, "little"))
            self.interpreter, words, self.folder, self.variables, self.umask, self.files = (
                marshal.loads(data)
            )
        except (EOFError, ConnectionError):
            self.close()
            raise
        self.words = list(words)

    def close(self) -> None:
        """Close what was received."""
        for file in self.received:
            os.close(file)

    def enter(self) -> None:
        """Make this process the one that was asked for."""
        moved = [fcntl.fcntl(file, fcntl.F_DUPFD, ABOVE) for file in self.received]
        self.close()
        for file, number in zip(moved, self.files, strict=True):
            os.dup2(file, number)
            os.close(file)
        os.chdir(self.folder)
        os.umask(self.umask)
        os.environ.clear()
        os.environ.update(self.variables)
        # before threads start, whose number must not change
        numba.config.reload_config()
        if VARIABLE in self.variables:
            fused.force_backend("reference")
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGHUP, signal.SIG_DFL)

    def run(self) -> None:
        """Run the words as the interpreter does."""
        sys.executable = self.interpreter
        first, *rest = self.words
        sys.path[1:1] = filter(None, self.variables.get("PYTHONPATH", "").split(os.pathsep))
        if first == "-m":
            sys.path[0] = self.folder
            sys.argv = rest
            runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
            return
        sys.path[0] = os.path.dirname(os.path.realpath(first))
        sys.argv = self.words
        main = sys.modules["__main__"] = types.ModuleType("__main__")
        main.__file__ = first
        with open(first, encoding="utf-8") as file:
            code = compile(file.read(), first, "exec")
        exec(code, main.__dict__)


class Server:
    """Forks for each request, tells the client the number of the process and its end, and ends it
    with its client.
    """

    def __init__(self, listener: socket.socket):
        self._ready = selectors.DefaultSelector()
        # with the connections of their clients
        self._children: dict[int, socket.socket] = {}
        self._has_kernels = False
        self._watch(listener, lambda: self._begin(listener))
        self._watch(sys.stdin.fileno(), self._stop)

    def serve(self) -> Request:
        """Serve for ever; in a fork, return what it shall run."""
        while True:
            for key, _ in self._ready.select():
                # one that ended meanwhile is no longer watched
                if key.fd in self._ready.get_map() and (request := key.data()) is not None:
                    return request

    def _watch(self, file: socket.socket | int, react: Callable[[], Request | None]) -> None:
        self._ready.register(file, selectors.EVENT_READ, react)

    def _begin(self, listener: socket.socket) -> Request | None:
        connection, _ = listener.accept()
        try:
            request = Request(connection)
        except (EOFError, ConnectionError):
            # the client was killed
            connection.close()
            return None
        if not self._has_kernels:
            self._has_kernels = True
            load_kernels(request.variables)
        child = os.fork()
        if not child:
            self._forget()
            connection.close()
            request.enter()
            return request
        request.close()
        self._children[child] = connection
        _tell(connection, child)
        process = os.pidfd_open(child)
        self._watch(process, lambda: self._end(child, process, connection))
        self._watch(connection, lambda: self._abandon(child, connection))
        return None

    def _forget(self) -> None:
        """Close what a fork has from the server, now: a socket that is closed later closes a file
        of the program by its number.
        """
        for connection in self._children.values():
            connection.close()
        for file in [key.fileobj for key in self._ready.get_map().values()]:
            if isinstance(file, socket.socket):
                file.close()
            else:
                os.close(file)
        self._ready.close()

    def _end(self, child: int, process: int, connection: socket.socket) -> None:
        _, status = os.waitpid(child, 0)
        del self._children[child]
        self._ready.unregister(process)
        os.close(process)
        if connection in self._ready.get_map():
            self._ready.unregister(connection)
            _tell(connection, os.waitstatus_to_exitcode(status))
        connection.close()

    def _abandon(self, child: int, connection: socket.socket) -> None:
        self._ready.unregister(connection)
        os.kill(child, signal.SIGKILL)

    def _stop(self) -> None:
        for child in self._children:
            os.kill(child, signal.SIGKILL)
        os._exit(0)


def _tell(connection: socket.socket, number: int) -> None:
    # a client that was killed hears nothing
    with contextlib.suppress(BrokenPipeError):
        connection.sendall(number.to_bytes(SIZE, "little", signed=True))


def load_kernels(variables: Mapping[str, str]) -> None:
    """Run a job, which loads kernels from the cache folder of a program with these variables.

    On one thread, because a fork has none of the others; and without the start of a program, which
    finds its communicator once.
    """
    before = dict(os.environ)
    if CACHE in variables:
        os.environ[CACHE] = variables[CACHE]
    os.environ["NUMBA_NUM_THREADS"] = "1"
    numba.config.reload_config()
    Trainer(**JOB, comm=SerialComm()).fit()
    os.environ.clear()
    os.environ.update(before)
    gc.collect()
    gc.freeze()


def main() -> None:
    """Import, then serve."""
    listener = socket.socket(fileno=int(sys.argv[1]))
    for name in MODULES:
        importlib.import_module(name)
    import_networkit()
    gc.freeze()
    request = Server(listener).serve()
    code: object = 0
    try:
        request.run()
    except SystemExit as error:
        code = error.code or 0
    except Exception as error:
        # as the interpreter does at its top, but without the lines of this file
        at = error.__traceback__
        while at is not None and at.tb_frame.f_code.co_filename == __file__:
            at = at.tb_next
        sys.excepthook(type(error), error.with_traceback(at), at)
        code = 1
    if isinstance(code, int):
        end(code)
    sys.exit(code)  # type: ignore[arg-type]


def end(code: int) -> None:
    """End as the interpreter does, but without taking its objects apart: a fork would first copy
    most of the memory that it shares with the server, which takes longer than many programs.

    Returns if output cannot be written, which the interpreter reports.
    """
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    mpi = sys.modules.get("mpi4py.MPI")
    if mpi is not None and mpi.Is_initialized() and not mpi.Is_finalized():
        mpi.Finalize()
    with contextlib.suppress(OSError, ValueError):
        for stream in filter(None, (sys.stdout, sys.stderr)):
            stream.flush()
        # of the C library, whose functions at exit tell the launcher that a rank has ended well
        ctypes.PyDLL(None).exit(code)


if __name__ == "__main__":
    main()
