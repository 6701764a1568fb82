"""Callbacks that send the metrics of a run to TensorBoard or MLflow."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

from graphtheta.base.arguments import checked
from graphtheta.errors import ConfigError
from graphtheta.train.loop.callback import Callback, Now
from graphtheta.train.loop.session import Session


def _library(name: str, package: str) -> Any:
    try:
        return import_module(name)
    except ImportError:
        raise ConfigError(f"{package} is not installed: pip install {package}") from None


def _numbers(now: Now) -> dict[str, float]:
    """The loss and the metrics of the last evaluation."""
    return {
        name: float(x)
        for name, x in now.row.items()
        if isinstance(x, (int, float)) and name not in ("epoch", "step")
    }


class TensorBoard(Callback):
    """Writes metrics as TensorBoard scalars, by update; only rank 0 writes. Needs the package
    tensorboardX.

    Args:
        trainer: The trainer whose ``fit`` receives this callback.
        folder: Folder of the event files; by default ``tensorboard`` in the folder of the run.

    Raises:
        ConfigError: tensorboardX is not installed.
    """

    @checked
    def __init__(self, trainer: Session, folder: str | Path | None = None):
        self._trainer = trainer
        self._folder = folder
        self._library = _library("tensorboardX", "tensorboardX") if trainer.comm.rank == 0 else None
        self._writer: Any = None

    def on_evaluation(self, now: Now) -> None:
        """Write a scalar for each metric, with names such as ``val/accuracy``."""
        if self._library is not None:
            if self._writer is None:
                # only training chooses the folder of the run
                folder = self._folder or self._trainer.job.folder / "tensorboard"
                self._writer = self._library.SummaryWriter(str(folder))
            for name, value in _numbers(now).items():
                split, _, metric = name.partition("_")
                self._writer.add_scalar(f"{split}/{metric}" if metric else name, value, now.step)

    def on_end(self, now: Now) -> None:
        """Close the file."""
        if self._writer is not None:
            self._writer.close()


class MLflow(Callback):
    """Logs the keys of the job as parameters and the metrics by update, as a run of MLflow; only
    rank 0 logs. Needs the package mlflow.

    Args:
        trainer: The trainer whose ``fit`` receives this callback.
        experiment: Name of the experiment; by default that of the environment.
        uri: Tracking server or folder; by default that of the environment.

    Raises:
        ConfigError: mlflow is not installed.
    """

    @checked
    def __init__(self, trainer: Session, experiment: str = "", uri: str = ""):
        self._mlflow = None
        if trainer.comm.rank == 0:
            self._mlflow = _library("mlflow", "mlflow")
            if uri:
                self._mlflow.set_tracking_uri(uri)
            if experiment:
                self._mlflow.set_experiment(experiment)
            self._mlflow.start_run(run_name=trainer.job.folder.name)
            self._mlflow.log_params(
                {
                    key: trainer.job.as_text(key)
                    for _, keys in trainer.job.sections()
                    for key in keys
                }
            )

    def on_evaluation(self, now: Now) -> None:
        """Log the metrics."""
        if self._mlflow is not None:
            self._mlflow.log_metrics(_numbers(now), step=now.step)

    def on_end(self, now: Now) -> None:
        """End the run of MLflow."""
        if self._mlflow is not None:
            self._mlflow.log_metric("best_epoch", now.best_epoch)
            self._mlflow.end_run()
