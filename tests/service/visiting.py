"""A visitor of the page, who fills in its forms as a browser does."""

import asyncio
import dataclasses
import re
from html.parser import HTMLParser
from urllib.parse import urlsplit

import httpx
from fastapi import FastAPI

from tidegate.service import tokens
from tidegate.service.database import Database

from .serving import Server


@dataclasses.dataclass
class Page:
    """What a browser would find in an answer."""

    answer: httpx.Response

    @property
    def text(self) -> str:
        return self.answer.text

    @property
    def form_token(self) -> str:
        found = re.search(r'name="form_token" value="([0-9a-f]{64})"', self.text)
        assert found is not None, self.text[:2000]
        return found[1]


class Visitor:
    """Somebody with a browser that keeps cookies."""

    def __init__(self, server: Server) -> None:
        single = httpx.Limits(max_keepalive_connections=0)  # nothing is left open
        self.http = httpx.Client(base_url=server.url, timeout=60, limits=single)
        self.origin = server.url

    def see(self, place: str, **headers: str) -> Page:
        """Go to a page, through redirections."""
        return Page(self.http.get(place, headers={"Accept": "text/html", **headers}, follow_redirects=True))

    def send(self, place: str, token: str, origin: str | None = "", /, **fields: str) -> httpx.Response:
        """Send a form, from the page's own origin unless another is given."""
        sent = self.origin if origin == "" else origin
        headers = {"Accept": "text/html", **({} if sent is None else {"Origin": sent})}
        return self.http.post(place, data={"form_token": token, **fields}, headers=headers)

    def sign_in(self, token: str, next: str = "/") -> httpx.Response:
        page = self.see("/sign-in")
        return self.send("/sign-in", page.form_token, token=token, next=next)


def visitor(server: Server, name: str, scopes: str = "read") -> Visitor:
    """Somebody who is signed in with a new token."""
    found, database = Visitor(server), Database(server.database)
    answer = found.sign_in(tokens.new_token(database, name, scopes))
    database.close()
    assert answer.status_code == 303, answer.text
    return found


class Addresses(HTMLParser):
    """Every address that a page would load, follow or send to; scripts and inline styles."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.active: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        for name, value in attributes:
            if name in ("href", "src", "action", "formaction", "data", "poster", "srcset"):
                self.found.append(value or "")
            if name.startswith("on") or name == "style":
                self.active.append(f"{tag} {name}")
        if tag in ("script", "iframe", "object", "embed", "base", "style"):
            self.active.append(tag)

    @property
    def external(self) -> list[str]:
        return [one for one in self.found if urlsplit(one).scheme or one.startswith("//")]


class InProcess(httpx.BaseTransport):
    """Requests to an application without a server, one after the other."""

    def __init__(self, app: FastAPI) -> None:
        self.app = httpx.ASGITransport(app, raise_app_exceptions=False)  # as a server does

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        async def asked() -> httpx.Response:
            answer = await self.app.handle_async_request(request)
            return httpx.Response(answer.status_code, headers=answer.headers, content=await answer.aread())

        return asyncio.run(asked())


def client_of(app: FastAPI, url: str = "http://testserver") -> httpx.Client:
    """A client of an application in this process, through redirections."""
    return httpx.Client(transport=InProcess(app), base_url=url, follow_redirects=True)


def signed_in(database: Database, client: httpx.Client, scopes: str = "read", life: str = "1h") -> str:
    token = tokens.new_token(database, f"visitor-{scopes.replace(',', '-')}", scopes.split(","), life)
    shown = re.search(r'value="([0-9a-f]{64})"', client.get("/sign-in").text)
    assert shown is not None
    answer = client.post(
        "/sign-in", data={"form_token": shown[1], "token": token}, headers={"Origin": "http://testserver"}
    )
    assert "Signed in as" in answer.text
    return token
