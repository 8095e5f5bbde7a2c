"""Endpoints and registries of the service's file: tables under [endpoints] and [mlflow].

A secret is written into the file, or the file names the environment variable that holds it.
"""

import logging
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ...errors import SettingsError
from ..database import Database
from ..naming import require_name
from . import endpoints
from .endpoints import MLFLOW, RESERVED, Endpoint

T = TypeVar("T", bound=BaseModel)
log = logging.getLogger("tidegate.service")


class EndpointTable(BaseModel):
    """[endpoints.NAME]: where signed events go."""

    model_config = ConfigDict(extra="forbid", strict=True, use_attribute_docstrings=True)

    url: str
    """Where the events are sent."""
    secret: str = ""
    """What signs them, as `whsec_` and base64."""
    secret_env: str = ""
    """In place of it: the environment variable that holds it."""
    types: list[str] = []
    """Which events; empty: all of them."""
    gate: str | None = None
    """Those of this gate alone."""


class RegistryTable(BaseModel):
    """[mlflow.GATE]: the registered model whose new versions a gate decides on."""

    model_config = ConfigDict(extra="forbid", strict=True, use_attribute_docstrings=True)

    tracking_uri: str
    """The tracking server."""
    model: str = Field(min_length=1, max_length=250)
    """The registered model."""
    alias: str = Field("champion", pattern=r"^[A-Za-z0-9_-]{1,200}$")
    """The alias that the version which runs gets."""
    evaluate: bool = True
    """Whether a new version asks for a decision."""
    secret: str = ""
    """That of the registry's webhook, which tells who calls."""
    secret_env: str = ""
    """In place of it: the environment variable that holds it."""
    token: str = ""
    """What the tracking server wants to see, if anything."""
    token_env: str = ""
    """In place of it: the environment variable that holds it."""


def configure(database: Database, path: Path, by: str) -> None:
    """Keep the endpoints and registries of a file."""
    content = tomllib.loads(path.read_bytes().decode())
    for name, values in _tables(content, "endpoints").items():
        _told(database, _endpoint(name, _read(EndpointTable, f"endpoints.{name}", values)), by)
    for gate, values in _tables(content, "mlflow").items():
        _told(database, _registry(gate, _read(RegistryTable, f"mlflow.{gate}", values)), by)


def _endpoint(name: str, table: EndpointTable) -> Endpoint:
    secret = _secret(f"endpoints.{name}.secret", table.secret, table.secret_env)
    if not secret:
        raise SettingsError(
            f"endpoints.{name} has no secret.",
            remedy="Set `secret`, or `secret_env` to the name of an environment variable.",
        )
    return endpoints.webhook(name, table.url, secret, tuple(table.types), table.gate)


def _registry(gate: str, table: RegistryTable) -> Endpoint:
    require_name("a gate", gate)
    secret = _secret(f"mlflow.{gate}.secret", table.secret, table.secret_env)
    if not secret:
        raise SettingsError(
            f"mlflow.{gate} has no secret, so nobody could tell who calls.",
            remedy="Set `secret` or `secret_env` to that of MLflow's webhook.",
        )
    settings = {
        "model": table.model,
        "alias": table.alias,
        "evaluate": table.evaluate,
        "token": _secret(f"mlflow.{gate}.token", table.token, table.token_env),
    }
    url = endpoints.require_url(table.tracking_uri).rstrip("/")
    return Endpoint(RESERVED + gate, url, secret, (), gate, MLFLOW, settings)


def _told(database: Database, endpoint: Endpoint, by: str) -> None:
    changed = endpoints.define(database, endpoint, by)
    log.info("endpoint %s%s", endpoint.name, " is new or changed" if changed else "")


def _tables(content: Mapping[str, Any], name: str) -> dict[str, Any]:
    found = content.get(name, {})
    if isinstance(found, dict) and all(isinstance(one, dict) for one in found.values()):
        return found
    raise SettingsError(f"{name} is unclear.", expected=f"tables such as [{name}.ranking]")


def _read(kind: type[T], place: str, values: Mapping[str, Any]) -> T:
    try:
        return kind.model_validate({name.replace("-", "_"): one for name, one in values.items()})
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        key = ".".join([place, *map(str, first["loc"])])
        raise SettingsError(
            f"{key}: {first['msg']}.", remedy="See docs/how-to/service-adapters.md."
        ) from error


def _secret(key: str, written: str, variable: str) -> str:
    if not variable:
        return written
    found = os.environ.get(variable, "")
    if written or not found:
        what = "is given twice" if written else f"is to be in {variable}, which is not set"
        raise SettingsError(f"{key} {what}.", remedy="Give it in one place.")
    return found
