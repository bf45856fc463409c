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
from typing import TYPE_CHECKING, Any

from airflow_provider_backfill._text import line
from airflow_provider_backfill.exceptions import (
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


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceSpec:
    """Which dlt source a backfill reads.

    Args:
        reference: ``package.module:attribute`` or ``path/to/file.py:attribute``, or the source itself: a
            function that returns a source, a ``@dlt.source``, a ``@dlt.resource``.
        arguments: Keyword arguments for a source that is called; default none.
        resources: Names of the resources to load; default all that the source selects.
        name: What the source is called in identities and in the ledger; default dlt's own name of it.
    """

    reference: str | Callable[..., Any] | Any
    arguments: Mapping[str, Any] = field(default_factory=dict)
    resources: tuple[str, ...] = ()
    name: str | None = None

    def load(self) -> DltSource:
        """Make a fresh source, nothing of which an earlier attempt has touched.

        Raises:
            SourceNotFoundError: There is no such module, attribute or resource.
            SourceImportError: The module raised when it was imported.
            SourceArgumentsError: The source does not take the arguments, or lacks one.
        """
        from dlt.extract.resource import DltResource
        from dlt.extract.source import DltSource

        found = _resolve(self.reference) if isinstance(self.reference, str) else self.reference
        made = isinstance(found, DltResource | DltSource)
        if callable(found) and (self.arguments or not made):
            found = self._call(found)
        elif self.arguments:
            raise SourceArgumentsError(self.label, "it is made already and takes no arguments")
        if isinstance(found, DltResource):
            found = _wrap(found, self.name)
        if not isinstance(found, DltSource):
            raise SourceNotFoundError(
                self.label, f"it is a {type(found).__name__}", "pass a @dlt.source or a @dlt.resource"
            )
        source = found.clone(with_name=_schema_name(self.name)) if self.name else found.clone()
        _own_cursors(source)
        unknown = sorted(set(self.resources) - set(source.resources))
        if unknown:
            known = ", ".join(sorted(source.resources))
            reason = f"it has no resource {', '.join(unknown)}"
            raise SourceNotFoundError(self.label, reason, f"pass any of: {known}")
        return source.with_resources(*self.resources) if self.resources else source

    def _call(self, function: Callable[..., Any]) -> Any:
        from dlt.common.configuration.exceptions import ConfigFieldMissingException

        signature = inspect.signature(function)
        try:
            signature.bind(**self.arguments)
        except TypeError as error:
            remedy = f"it takes: {', '.join(signature.parameters) or 'none'}"
            raise SourceArgumentsError(self.label, line(error), remedy) from None
        try:
            return function(**self.arguments)
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
        raise SourceImportError(reference, line(error)) from error


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
