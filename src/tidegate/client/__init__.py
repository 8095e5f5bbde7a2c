"""The service as a Python program sees it, with the standard library alone.

from tidegate.client import Client

client = Client("http://127.0.0.1:8400", token)
client.send("ranking", rows)  # dictionaries, or a frame
if client.policy("ranking")["policy"] == "candidate":
    ...

Answers are the service's own: plain values under the names that /openapi.json gives them.
"""

from .calls import Client as Client
from .transport import ServiceRefusal as ServiceRefusal
