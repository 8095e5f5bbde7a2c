"""What may be chosen by name; without numbers, so that the command's help does not wait for them."""

import enum


class BasisKind(enum.StrEnum):
    """The shape that performance may take over time."""

    COSINE = "cosine"
    POLYNOMIAL = "polynomial"
    FOURIER = "fourier"
    CONSTANT = "constant"


class PolicyClass(enum.StrEnum):
    """Among which policies a candidate is searched."""

    AUTO = "auto"
    """Softmax or Gaussian without features, linear with features."""
    SOFTMAX = "softmax"
    LINEAR = "linear"
    MLP = "mlp"
    GAUSSIAN = "gaussian"
