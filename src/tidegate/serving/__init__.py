"""A saved policy in production: NumPy alone, so that a server neither waits for JAX nor needs its memory.

from tidegate.serving import load_policy

policy = load_policy("policy.json")
policy.probabilities({"age": 34, "country": "DE"})
action, probability = policy.choose({"age": 34, "country": "DE"}, rng)

Write the probability into the log: it is the `behavior_prob` of the next gate. `policy.schema.json` is the
JSON Schema of the files that `improve` writes, and `reader.js` reads them in JavaScript.
"""

from .files import PolicyFile as PolicyFile
from .files import read_policy_file as read_policy_file
from .policies import ServedPolicy as ServedPolicy
from .policies import load_policy as load_policy
