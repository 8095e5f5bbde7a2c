"""The shapes of answers about events."""

from typing import Any, Literal

from pydantic import BaseModel


class DeliveryState(BaseModel):
    """An event on its way to one endpoint."""

    endpoint: str
    state: Literal["pending", "delivered", "dead"]
    attempts: int
    status: int | None
    problem: str
    at: str | None


class Event(BaseModel):
    """What happened at a gate, as it was sent."""

    sequence: int
    id: str
    type: str
    timestamp: str
    data: dict[str, Any]
    deliveries: list[DeliveryState]


class EventList(BaseModel):
    """Events in order; `next` is what to ask after."""

    data: list[Event]
    next: int


class EndpointShown(BaseModel):
    """Where events go, without its secret."""

    name: str
    kind: Literal["webhook", "mlflow"]
    url: str
    gate: str | None
    state: Literal["active", "gone"]
    types: list[str]
    at: str
    by: str


class EndpointKept(EndpointShown):
    """The same, with the secret if it is new."""

    secret: str | None


class EndpointAnswer(BaseModel):
    """One endpoint."""

    data: EndpointKept


class EndpointList(BaseModel):
    """All endpoints."""

    data: list[EndpointShown]


class Retried(BaseModel):
    """How many deliveries are tried again."""

    deliveries: int


class RetriedAnswer(BaseModel):
    """What a retry set going."""

    data: Retried
