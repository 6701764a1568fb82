"""Errors in functions of the user name their line."""

from __future__ import annotations

import inspect

import numpy as np

import graphtheta.ops as gt
from graphtheta.ops.autodiff.naming import _line


def test_the_line_is_the_innermost_one_outside_of_the_package():
    try:
        here = inspect.currentframe().f_lineno + 1
        gt.expand_last(np.ones(2), "a")
    except TypeError as error:
        assert _line(error) == f" (test_naming.py, line {here})"
    else:
        raise AssertionError("expand_last took a string")
