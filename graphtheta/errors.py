"""The exceptions of GraphTheta.

Each also derives from a builtin exception, so that ``except ValueError`` works. A message says
what is wrong, where, and what to do about it.
"""


class GraphThetaError(Exception):
    """Base class of all exceptions of GraphTheta."""

    # whether the message already names the user function in which it was raised
    located = False
    # whether all ranks raise it, so that none has to be told
    agreed = False


class ConfigError(GraphThetaError, ValueError):
    """A job setting is unknown, out of range, or does not fit another one."""


class ArgumentError(ConfigError, TypeError):
    """A function was given an argument that it does not have, or one of another type."""


class DataError(GraphThetaError, ValueError):
    """A graph, feature, label or split is inconsistent."""


class DivergedError(DataError):
    """Training has left the finite numbers: a loss, or what an update made, is NaN or infinite.

    Attributes:
        best_epoch: Epoch of the best model before, whose weights the model holds; 0 for none.
    """

    best_epoch = 0


class FormatError(GraphThetaError, ValueError):
    """A file is unreadable, truncated, or not of the expected format."""


class ShapeError(GraphThetaError, ValueError):
    """Arrays do not fit together."""


class ColumnError(GraphThetaError, KeyError):
    """A user function reads a column that does not exist."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class UserFunctionError(GraphThetaError, TypeError):
    """A user's transform, gather, apply or column returned something unusable."""


class MissingRuleError(GraphThetaError, NotImplementedError):
    """An operation has no gradient rule for an argument that needs one."""


class TapeError(GraphThetaError, RuntimeError):
    """The tape was used out of order, for example two backward passes over one recording."""


class CheckError(GraphThetaError, AssertionError):
    """A check of gradients or invariances found a difference."""


class PartitionError(GraphThetaError, ValueError):
    """The graph cannot be partitioned over the ranks as requested."""


class ViewError(GraphThetaError, ValueError):
    """A view does not fit the model or graph it is used with."""


class CommError(GraphThetaError, RuntimeError):
    """Ranks disagree on which message or collective comes next."""

    # ranks that are out of step cannot tell each other
    agreed = True


class PeerError(CommError):
    """Another rank failed, and this rank stops too."""


class MemoryLimitError(GraphThetaError, MemoryError):
    """The job does not fit into the memory it may use."""


def annotate(error: BaseException, note: str) -> None:
    """Add a line below the message of an error.

    Args:
        error: The error, changed in place; type and traceback stay.
        note: The line.
    """
    # Python 3.10 does not print notes; the report of an uncaught error does
    error.__notes__ = [*getattr(error, "__notes__", []), note]
