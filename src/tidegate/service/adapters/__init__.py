"""The same answers in other words: what Flagger, OpenFeature and MLflow send and expect.

flagger      webhooks confirm-promotion and rollback
ofrep        OpenFeature's remote evaluation: a gate is a flag
mlflow       a registry tells of a new version of a model: signature, and an evaluation
registries   what was decided goes to the registry: tags, and an alias
"""
