"""The live gate: a service that takes episodes in, decides, and says which policy to run.

What a request meets, in this order:

    app           limits, tokens, routes; one shape for every error
    limits        bytes per request, requests per second
    state         what the routes share; who asks
    routes/       the resources, one file each; `shapes` of their answers for OpenAPI
    page/         what people see: a page with sign-in, rendered here
    presenting    rows as clients see them; `paging` of those that are numbered

What they call. Each function that changes something takes or makes one transaction, in which the audit entry
and the kept answer are written with the thing itself:

    definitions   what a gate is: one schema for gates.toml and for PUT; `naming` of gates and tokens
    registry      gates, version by version
    uploads       policy files, kept by their hash
    ingest        a body -> rows that have passed the door; `keys` of their episodes
    accepting     rows -> a stored batch, and all that follows from it
    batches       batches in the store, and back as one frame
    answers       Idempotency-Key: the first answer
    evaluations   the queue: asked, claimed, decided once
    budgets       error budgets as rows, by the rules of `gates.ledger`
    standing      which policy runs now; approvals, releases, rollbacks
    audit         the chain of entries; `proving` walks it and replays decisions
    tokens        who may do what
    events/       what happened, told to whoever asked for it, at least once
    adapters/     the same answers in the words of Flagger, OpenFeature and MLflow

What computes, in a process of its own:

    worker        takes from the queue, at low priority; `workers` starts it again when it dies
    deciding      one evaluation: episodes from the store, `tidegate.gate`, the decision into the store
    watching      the watch of what was released: new batches, `gates.watch`, a rollback where harm is shown

What it stands on:

    schema        the tables; `migrations` makes them
    database      SQLite or PostgreSQL; transactions
    metrics       numbers for Prometheus
    tags          ETags
    refusals      errors with their HTTP status
    config        the service's file
    server        `tidegate serve`
"""
