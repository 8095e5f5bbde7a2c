"""Events out: what happens at gates, told to whoever asked, at least once.

An event is a row that is written in the transaction of the audit entry that it tells, with one delivery for
each endpoint that wants it. A sender delivers what is due and tries again, so neither a crash of this server
nor one of the receiver loses anything.

    tables      events, endpoints, deliveries, and the model versions that the adapter for MLflow knows
    signing     Standard Webhooks: secrets and signatures
    outbox      an audit entry -> an event and its deliveries; what GET /v1/events shows
    endpoints   where events go; secrets are kept and never shown again
    queue       which delivery is due, whose it is, and what became of it
    posting     one signed request
    sender      the threads that deliver
    configured  endpoints and registries of the service's file
    numbers     deliveries, for Prometheus
    routes      the resources; `shapes` of their answers
"""
