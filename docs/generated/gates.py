"""The keys of gates.toml, from the schemas that read it."""

from tidegate.service.definitions import GateDefinition
from tidegate.service.events.configured import EndpointTable, RegistryTable

from .schemas import fields
from .words import page

INTRODUCTION = """
`tidegate serve --config gates.toml` reads this file at each start. It has tables of gates, of endpoints and
of registries, each by its name. A table `[gates.NAME]` holds what `PUT /v1/gates/NAME` takes as JSON. You
may write a key like the flag of `tidegate gate`: `behavior-prob` is `behavior_prob`. An unknown key is
refused. [The live gate](../how-to/service.md) has an example.
"""


def gates_page() -> str:
    """The page of the service's file."""
    return page(
        "The service's file: gates.toml",
        INTRODUCTION,
        "## [gates.NAME]",
        fields(inlined(GateDefinition.model_json_schema()), with_default=True),
        "## [endpoints.NAME]\n\nWhere signed events go ([events](../how-to/service-adapters.md#events)).",
        fields(EndpointTable.model_json_schema(), with_default=True),
        "## [mlflow.GATE]\n\nThe registered model whose new versions this gate decides on "
        "([MLflow](../how-to/service-adapters.md#mlflow)).",
        fields(RegistryTable.model_json_schema(), with_default=True),
    )


def inlined(schema: dict[str, object]) -> dict[str, object]:
    """A schema without references."""
    definitions = schema.get("$defs", {})

    def resolved(value: object) -> object:
        if isinstance(value, dict):
            if "$ref" in value:
                name = str(value["$ref"]).rsplit("/", 1)[1]
                return {**definitions[name], **{k: v for k, v in value.items() if k != "$ref"}}  # type: ignore[index]
            return {key: resolved(one) for key, one in value.items()}
        return [resolved(one) for one in value] if isinstance(value, list) else value

    found = resolved({key: one for key, one in schema.items() if key != "$defs"})
    assert isinstance(found, dict)
    return found
