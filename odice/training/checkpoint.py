"""Checkpoints: the complete state of a run, so that a resumed run is the uninterrupted one, bit for bit.

Orbax writes a checkpoint under a temporary name and renames it when it is complete, so a kill at any moment leaves the
earlier ones untouched. Each checkpoint carries the SHA-256 of its arrays and of its description; one that does not
match (or cannot be read, or belongs to another run) is set aside with a warning, and the one before is used.

Saving is synchronous: a state of the paper's size is about 3 MB, and the loop waits a tenth of a second for it.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import warnings
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from odice.errors import OdiceError
from odice.files import delete, make_folder, refuse_links_in, sealed, unsealed

UNFINISHED = re.compile(r"\d+\.orbax-checkpoint-tmp.*")
"""What orbax calls a checkpoint that it has not finished."""


class CheckpointWarning(UserWarning):
    """A checkpoint could not be used; an earlier one was."""


class Restored(NamedTuple):
    """What a checkpoint holds: arrays (a pytree of host arrays) and plain JSON values."""

    step: int
    arrays: Any
    facts: dict[str, Any]


def digest(tree: Any) -> str:
    """SHA-256 over every array of a pytree: its path, type, shape and bytes."""
    total = hashlib.sha256()
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        array = np.ascontiguousarray(leaf)
        total.update(f"{jax.tree_util.keystr(path)} {array.dtype.str} {array.shape}".encode())
        total.update(array.data)
    return total.hexdigest()


class Checkpoints:
    """The checkpoints of one run.

    Args:
        folder: Where they are kept.
        keep: How many `prune` leaves, beside the best one.
    """

    def __init__(self, folder: Path, keep: int = 3):
        self._keep, self._folder = keep, folder.absolute()
        try:
            make_folder(self._folder)
            refuse_links_in(self._folder)  # orbax would write and delete behind them
            self._remove_unfinished()
        except OSError as error:
            raise self._refused(error) from None

    def open(self) -> None:
        """Load what writes and reads them, which takes a while."""
        _ = self._manager

    @cached_property
    def _ocp(self) -> Any:
        import orbax.checkpoint

        logging.getLogger("absl").setLevel(logging.CRITICAL)  # what orbax has to say, our errors say in words
        return orbax.checkpoint

    @cached_property
    def _manager(self) -> Any:
        ocp = self._ocp
        alone = ocp.options.MultiprocessingOptions()
        if jax.process_count() > 1:  # each process keeps its own: the first one the run's
            own = jax.process_index()
            alone = ocp.options.MultiprocessingOptions(own, {own}, f"process-{own}")
        options = ocp.CheckpointManagerOptions(
            enable_async_checkpointing=False, max_to_keep=None, create=False, multiprocessing_options=alone
        )
        try:
            return ocp.CheckpointManager(self._folder, options=options)
        except OSError as error:
            raise self._refused(error) from None

    def _refused(self, error: OSError) -> OdiceError:
        return OdiceError(f"{self._folder}: cannot keep checkpoints there ({error.strerror}).")

    @property
    def steps(self) -> list[int]:
        """Their steps, the oldest first."""
        return sorted(self._manager.all_steps()) if any(self._folder.iterdir()) else []

    def save(self, step: int, arrays: Any, facts: dict[str, Any]) -> None:
        """Commit a checkpoint, or leave everything as it was and say why it could not be done.

        Args:
            step: Of the run.
            arrays: A pytree.
            facts: Plain JSON values.
        """
        ocp = self._ocp
        arrays = jax.tree.map(np.asarray, arrays)
        facts = sealed({**facts, "arrays_sha256": digest(arrays)})
        items = ocp.args.Composite(state=ocp.args.StandardSave(arrays), facts=ocp.args.JsonSave(facts))
        try:
            self._manager.save(step, args=items, force=True)
            self._manager.wait_until_finished()
        except Exception as error:  # orbax and tensorstore raise what they like when a disk is full
            self._remove_unfinished()
            self._manager.reload()
            kept = f"the one at step {self.steps[-1]} is intact" if self.steps else "there is none before it"
            raise OdiceError(
                f"{self._folder}: the checkpoint at step {step} could not be written ({_reason(error)}); {kept}. Free "
                "some space or make the folder writable, then run the same command again."
            ) from error

    def restore(self, like: Callable[[dict[str, Any]], Any], at_most: int | None = None) -> Restored | None:
        """The newest checkpoint that is intact; None if there is none at all.

        Args:
            like: From a checkpoint's facts to a pytree with the shapes and types of its arrays.
            at_most: Take none of a later step.
        """
        damaged: dict[int, str] = {}
        for step in [s for s in reversed(self.steps) if at_most is None or s <= at_most]:
            try:
                restored = self._read(step, like)
            except Exception as error:  # whatever a damaged file makes the reader do
                damaged[step] = _reason(error)
                continue
            for bad, reason in damaged.items():
                self._set_aside(bad)
                warnings.warn(
                    f"{self._folder / str(bad)}: this checkpoint cannot be used ({reason}) and was moved to "
                    f"{self._folder.parent / 'damaged'}; going back to the one before it.",
                    CheckpointWarning,
                    stacklevel=2,
                )
            return restored
        if damaged:
            raise OdiceError(
                f"{self._folder}: none of its {len(damaged)} checkpoints can be used ({next(iter(damaged.values()))}); "
                "delete the run's folder to start over."
            )
        return None

    def _read(self, step: int, like: Callable[[dict[str, Any]], Any]) -> Restored:
        args = self._ocp.args
        facts = self._manager.restore(step, args=args.Composite(facts=args.JsonRestore()))["facts"]
        facts = unsealed(facts, "its description")
        if facts.get("step", step) != step:
            raise ValueError(f"it was saved at step {facts['step']}")
        target = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), like(facts))
        saved = self._manager.restore(step, args=args.Composite(state=args.StandardRestore(target)))
        arrays = jax.tree.map(np.asarray, saved["state"])
        if digest(arrays) != facts.pop("arrays_sha256"):
            raise ValueError("its arrays do not have the checksum they were saved with")
        if jax.tree.map(np.shape, arrays) != jax.tree.map(np.shape, target):
            raise ValueError("its arrays do not have the shapes of this configuration")
        return Restored(step, arrays, facts)

    def forget_after(self, step: int) -> None:
        """Delete checkpoints later than `step`: the run continues from there and will write them again."""
        for later in [s for s in self.steps if s > step]:
            self._manager.delete(later)

    def prune(self, best: int | None = None) -> None:
        """Delete all but the last ones and, if it is there, the best."""
        steps = self.steps
        for step in steps[: -self._keep]:
            if step != best:
                self._manager.delete(step)

    def close(self) -> None:
        if "_manager" in self.__dict__:
            self._manager.close()

    def _set_aside(self, step: int) -> None:
        target = make_folder(self._folder.parent / "damaged") / str(step)
        delete(target)
        os.replace(self._folder / str(step), target)
        self._manager.reload()

    def _remove_unfinished(self) -> None:
        """Delete what a killed save left: a complete checkpoint is named by its step alone."""
        for item in self._folder.iterdir():
            if UNFINISHED.fullmatch(item.name):
                delete(item)


def _reason(error: Exception) -> str:
    """An exception in a line; tensorstore says what happened at the end of a long one."""
    text = (str(error).strip() or type(error).__name__).splitlines()[0]
    return text if len(text) <= 160 else f"...{text[-157:]}"
