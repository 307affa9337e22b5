"""Load a log for a policy, with the encoding and by default the schema of the log that it was trained on."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from odice.data.dataset import Dataset
from odice.data.load import find, load
from odice.data.schema import Schema
from odice.policy.policy import Policy


def log_for(policies: Any, source: Any, *, schema: Any = None, **options: Any) -> Dataset:
    """Load a log to evaluate policies on.

    Args:
        policies: A policy, or several; a function has no schema and no encoding.
        source: Anything `odice.load` takes.
        schema: What the columns of a table mean; by default the schema of the policies, if all have the same.
        **options: Those of `odice.load`.
    """
    several = [policies] if isinstance(policies, Policy) or not isinstance(policies, Iterable) else list(policies)
    known = [policy for policy in several if isinstance(policy, Policy)]
    encodings = [policy.encoding for policy in known]
    if encodings and all(each == encodings[0] for each in encodings):
        options["encoding"] = encodings[0]
    if schema is None and isinstance(source, str | os.PathLike):
        schemas = [policy.schema for policy in known]
        place = {name: options.get(name) for name in ("format", "data_dir")}
        if schemas and all(each and each == schemas[0] for each in schemas) and find(source, **place).format == "table":
            schema = Schema.parse(schemas[0] or {}, "the policy's schema")
    return load(source, **options, **({} if schema is None else {"schema": schema}))
