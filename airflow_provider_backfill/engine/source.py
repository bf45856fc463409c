"""Finding a dlt source by its name and making a fresh one for each attempt."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from airflow_provider_backfill._text import line
from airflow_provider_backfill.engine.fields import ChunkFields, mentioned
from airflow_provider_backfill.engine.gates import Assertions, check_assertions
from airflow_provider_backfill.engine.preflight import imports
from airflow_provider_backfill.exceptions import (
    ChoiceError,
    ChunkFieldError,
    Finding,
    PreflightError,
    SourceArgumentsError,
    SourceImportError,
    SourceNotFoundError,
)

if TYPE_CHECKING:
    from types import ModuleType

    from dlt.extract.source import DltSource

# Airflow imports a DAG file under such a name, whose digits change with the file's path.
_DAG_FILE_PREFIX = re.compile(r"^unusual_prefix_[0-9a-f]+_")


class BoundedBy(StrEnum):
    """What keeps a source from yielding more than a chunk."""

    CURSOR = "cursor"
    KWARGS = "kwargs"


class OnEmpty(StrEnum):
    """What a chunk without rows means."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceSpec:
    """Which dlt source a backfill reads.

    Args:
        reference: ``package.module:attribute`` or ``path/to/file.py:attribute``, or the source itself: a
            function that returns a source, a ``@dlt.source``, a ``@dlt.resource``.
        arguments: Keyword arguments for a source that is called; default none.
        resources: Names of the resources to load; default all that the source selects.
        name: What the source is called in identities and in the ledger; default dlt's own name of it.
        cursor_format: How a resource's cursor spells times, by the resource's name, with ``*`` for all
            others; see :mod:`cursors`. Default what the cursors' types say.
        bounded_by: ``cursor``: dlt's incrementals bound each chunk. ``kwargs``: the arguments do, which have
            fields for it, see :mod:`fields`. Default ``cursor``.
        cursor_column: For a source bounded by its arguments, the column (or JSON path) of each row that tells
            whether it lies in the chunk; what does not is dropped. Default none, which drops nothing.
        on_empty: What a chunk without rows means, ``ok``, ``warn`` or ``fail``; default ``warn``.
        assertions: What must hold for the rows of a chunk before they are published, by resource; see
            `gates.parse_assertions`. Default none.

    Raises:
        ChoiceError: ``bounded_by`` or ``on_empty`` is none of these.
    """

    reference: str | Callable[..., Any] | Any
    arguments: Mapping[str, Any] = field(default_factory=dict)
    resources: tuple[str, ...] = ()
    name: str | None = None
    cursor_format: Mapping[str, str] = field(default_factory=dict)
    bounded_by: str = BoundedBy.CURSOR
    cursor_column: str | None = None
    on_empty: str = OnEmpty.WARN
    assertions: Assertions = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, choices in (("bounded_by", BoundedBy), ("on_empty", OnEmpty)):
            value = getattr(self, name)
            if value not in list(choices):
                raise ChoiceError(name, value, tuple(choices))

    def load(self, chunk: ChunkFields | None = None) -> DltSource:
        """Make a fresh source, nothing of which an earlier attempt has touched.

        Args:
            chunk: Fills the fields in the arguments of a source that is bounded by them; default None leaves
                them as they are.

        Raises:
            ChunkFieldError: An argument has a field that a chunk has not, or that nobody fills.
            SourceNotFoundError: There is no such module, attribute or resource.
            SourceImportError: The module raised when it was imported.
            SourceArgumentsError: The source does not take the arguments, or lacks one.
            GateError: An assertion is for a resource that it does not have, or asks a function that is not
                there.
        """
        from dlt.extract.resource import DltResource
        from dlt.extract.source import DltSource

        found = self._found(chunk)
        if isinstance(found, DltResource):
            found = _wrap(found, self.name)
        if not isinstance(found, DltSource):
            raise SourceNotFoundError(
                self.label, f"it is a {type(found).__name__}", "pass a @dlt.source or a @dlt.resource"
            )
        source = found.clone(with_name=_schema_name(self.name)) if self.name else found.clone()
        unknown = sorted(set(self.resources) - set(source.resources))
        if unknown:
            known = ", ".join(sorted(source.resources))
            reason = f"it has no resource {', '.join(unknown)}"
            raise SourceNotFoundError(self.label, reason, f"pass any of: {known}")
        check_assertions(self.assertions, source.resources)
        source = source.with_resources(*self.resources) if self.resources else source
        # Last, since each clone shares the cursors of its original again.
        _own_cursors(source)
        return source

    def is_resource(self, chunk: ChunkFields | None = None) -> bool:
        """Whether it is a resource by itself, and no source; raises as `load` does."""
        from dlt.extract.resource import DltResource

        return isinstance(self._found(chunk), DltResource)

    def _found(self, chunk: ChunkFields | None) -> Any:
        """What the reference leads to, called if it is to be called."""
        from dlt.extract.resource import DltResource
        from dlt.extract.source import DltSource

        found = _resolve(self.reference) if isinstance(self.reference, str) else self.reference
        made = isinstance(found, DltResource | DltSource)
        if callable(found) and (self.arguments or not made):
            return self._call(found, self._filled(chunk))
        if self.arguments:
            raise SourceArgumentsError(self.label, "it is made already and takes no arguments")
        return found

    def _filled(self, chunk: ChunkFields | None) -> Mapping[str, Any]:
        if self.bounded_by == BoundedBy.KWARGS:
            return chunk.fill(self.arguments) if chunk else self.arguments
        for text in mentioned(self.arguments):
            reason = "would reach the source as it is written, since the source is bounded by its cursors"
            raise ChunkFieldError(text, reason, "pass bounded_by='kwargs' (--bounded-by kwargs)")
        return self.arguments

    def _call(self, function: Callable[..., Any], arguments: Mapping[str, Any]) -> Any:
        from dlt.common.configuration.exceptions import ConfigFieldMissingException

        signature = inspect.signature(function)
        try:
            signature.bind(**arguments)
        except TypeError as error:
            remedy = f"it takes: {', '.join(signature.parameters) or 'none'}"
            raise SourceArgumentsError(self.label, line(error), remedy) from None
        try:
            return function(**arguments)
        except ConfigFieldMissingException as error:
            reason = f"dlt finds no value for {', '.join(error.fields)}"
            remedy = "pass it as an argument, or set it in dlt's configuration"
            raise SourceArgumentsError(self.label, reason, remedy) from error

    def source_name(self, source: DltSource) -> str:
        """The name that identities are made from.

        Raises:
            SourceNotFoundError: The name has a character that separates the parts of an identity.
        """
        name = str(self.name or source.name)
        if not name or set(name) & set(":,|"):
            reason = "a source's name may not have : , or | in it"
            raise SourceNotFoundError(name, reason, "pass another source name")
        return name

    @property
    def imported(self) -> tuple[Finding, ...]:
        """What keeps the module from being used that this process saw when it imported it.

        Nothing before `load`, nothing of a source that is passed itself, and nothing of a module that
        something else had imported before.
        """
        if not isinstance(self.reference, str):
            return ()
        return imports.findings(self.reference.rpartition(":")[0])

    @property
    def label(self) -> str:
        """The reference as text, for messages."""
        if isinstance(self.reference, str):
            return self.reference
        name = getattr(self.reference, "__qualname__", None) or getattr(self.reference, "name", None)
        return str(name or type(self.reference).__name__)


def _wrap(resource: Any, name: str | None) -> DltSource:
    """A resource by itself becomes a source named after its module, as dlt names its section."""
    from dlt.common.schema import Schema
    from dlt.extract.source import DltSource

    section = _DAG_FILE_PREFIX.sub("", resource.section or resource.name)
    return DltSource(Schema(_schema_name(name or section)), section, [resource])


def _own_cursors(source: DltSource) -> None:
    """Give the source cursors that no other clone shares.

    An extraction leaves its bounds in a cursor, and dlt clips the next one to them: a second chunk would come
    out empty, without an error.
    """
    from dlt.extract.incremental import (
        Incremental,
        IncrementalResourceWrapper,
        incremental_config_to_instance,
    )

    for resource in source.resources.values():
        pipe: Any = resource._pipe
        owner: Any = resource
        while pipe is not None:
            hinted = owner._hints.get("incremental") if owner is not None else None
            for position, step in enumerate(pipe._steps):
                if isinstance(step, Incremental):
                    pipe._steps[position] = step.copy()
                elif isinstance(step, IncrementalResourceWrapper) and hinted is not None:
                    # Functions that are called already hold on to their wrapper, which is why it stays.
                    step._incremental = incremental_config_to_instance(hinted).copy()
            pipe, owner = pipe.parent, getattr(owner, "_parent", None)


def _schema_name(name: str) -> str:
    from dlt.common.schema.utils import normalize_schema_name

    return normalize_schema_name(name)


def _resolve(reference: str) -> Any:
    module_name, _, attribute = reference.rpartition(":")
    if not module_name or not attribute:
        raise SourceNotFoundError(reference, "it names no attribute")
    module = _import(reference, module_name)
    found: Any = module
    for part in attribute.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            raise SourceNotFoundError(reference, f"{module_name} has no attribute {part!r}") from None
    return found


def _import(reference: str, module_name: str) -> ModuleType:
    try:
        with imports.watched(module_name):
            if module_name.endswith(".py"):
                return _import_file(reference, module_name)
            return importlib.import_module(module_name)
    except (SourceNotFoundError, PreflightError):
        raise
    except ModuleNotFoundError as error:
        if error.name and (module_name == error.name or module_name.startswith(f"{error.name}.")):
            raise SourceNotFoundError(reference, f"no module named {error.name!r}") from None
        raise SourceImportError(reference, line(error)) from error
    except (Exception, SystemExit) as error:
        # What it tried to do is often why it failed: no task can count on a network when it imports.
        tried = "".join(f"; {act}" for act in imports.acts(module_name)[:1])
        raise SourceImportError(reference, f"{line(error)}{tried}") from error


def _import_file(reference: str, path: str) -> ModuleType:
    if not os.path.isfile(path):
        raise SourceNotFoundError(reference, f"there is no file {path}")
    name = os.path.splitext(os.path.basename(path))[0]
    if name in sys.stdlib_module_names:
        reason = f"{name!r} is a module of Python itself, which {path} would hide"
        raise SourceNotFoundError(reference, reason, "give the file another name")
    loaded = sys.modules.get(name)
    if loaded is not None and os.path.abspath(str(getattr(loaded, "__file__", ""))) == os.path.abspath(path):
        return loaded
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise SourceNotFoundError(reference, f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    # dlt looks the module up while its decorators run.
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module
