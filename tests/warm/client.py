"""Stands in for the interpreter: ``client.py SOCKETS PYTHON WORDS...``; see ``server.py``. Imports
what is built in alone.

Words that begin with another flag than ``-m graphtheta`` start the interpreter itself, because code
after ``-c`` may be about what is imported.
"""

import _signal
import _socket
import marshal
import os
import sys

SIZE = 8
FORWARDED = (_signal.SIGTERM, _signal.SIGINT, _signal.SIGHUP)


def main(sockets, python, *words):
    """Let a server run the words, pass signals on to the program, and end as it does."""
    if not words or (words[0].startswith("-") and words[:2] != ("-m", "graphtheta")):
        os.execv(python, [python, *words])
    # as hash seeds of processes differ, those of neighbouring ranks do
    server = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    server.connect(f"{sockets}/{int(os.environ.get('PMI_RANK', '0')) % 2}")
    umask = os.umask(0)
    # a launcher of ranks listens to the process that has this file
    files = [0, 1, 2, *([int(os.environ["PMI_FD"])] if "PMI_FD" in os.environ else [])]
    data = marshal.dumps((f"{sockets}/python", words, os.getcwd(), dict(os.environ), umask, files))
    passed = b"".join(file.to_bytes(4, sys.byteorder) for file in files)
    server.sendmsg(
        [len(data).to_bytes(SIZE, "little")], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, passed)]
    )
    sent = 0
    while sent < len(data):
        sent += server.send(data[sent:])
    child = int.from_bytes(receive(server), "little")
    for number in FORWARDED:
        _signal.signal(number, lambda number, frame: os.kill(child, number))
    for file in files:
        os.close(file)
    code = int.from_bytes(receive(server), "little", signed=True)
    if code < 0:
        # end by the same signal
        if -code in FORWARDED:
            _signal.signal(-code, _signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


def receive(server):
    """A number that the server sends."""
    data = b""
    while len(data) < SIZE:
        more = server.recv(SIZE - len(data))
        if not more:
            os._exit(1)
        data += more
    return data


main(*sys.argv[1:])
