"""Processes of a job: MPI, start, threads, work items, timelines, and the watchdog."""

from ..comm.call_site import INTERNAL_MODULES

INTERNAL_MODULES.add(__package__)
