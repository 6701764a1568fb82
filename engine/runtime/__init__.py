"""How the processes of a job run: MPI, start, threads, work items, timelines, and the watchdog."""
from ..comm.call_site import MACHINERY

MACHINERY.add(__package__)
