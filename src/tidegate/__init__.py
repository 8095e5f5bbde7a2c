"""Tidegate: from logged episodes to a safe decision in a world that drifts.

Read the files in this order, which follows the data. Each imports only files above it.

    errors        exceptions that tell a user what to do
    arrays        pytrees, precision, type names of arrays
    inputs        coerces or refuses what people pass: strings, enums, numbers, dictionaries, paths
    door          checks whatever people pass as arrays and columns
    episodes      the log of past episodes; splits, as rows
    measured      episodes of which only what was estimated is held
    policies      log_prob, sample, entropy: softmax, linear, MLP, Gaussian, recorded
    returns       what would this policy have earned in past episode i?
    values        what a step is worth: models that reduce the noise of returns
    basis         the time axis, past and forecast; time features
    trend         Algorithm 1: least squares, forecast, variance
    bootstrap     Algorithm 2: multipliers, percentile-t, percentile
    cells         a series of returns in time cells: their means, and how well these are known
    calendar_seasons  seasons of a known period that fits into a cell: hours of the day, days of the week
    models        the list of trend models: levels, lines, seasons, and how they may move
    mixture       all of them weighted by how well they would have forecast the past
    reasons       verdicts and why, in words
    comparison    tests as objects: two bounds, paired, multiscale
    forecast      policy + log -> forecast of its mean return over the next episodes
    search        ascent on the lower bound of the forecast
    record        how records are written: plain values, seal, file
    safety        two policies + episodes -> decision; fails closed
    loop          Algorithm 3: one turn of SPIN, as a pure function
    drivers       the loop run live, and in a simulated world
    presets       named sets of settings

The folders are the outer layers. They may import the files above and the folders listed before them.

    simulators    worlds to try it in: a recommender, patients with diabetes, any Gymnasium environment
    checks        is the log fit, does the trend fit; backtests; how many more episodes
    gates         guardrails on other outcomes, error budgets over many tests
    serving       a saved policy in production, with NumPy alone
    logs          files and tables of all kinds -> episodes
    reports       records -> words, pages and pictures
    commands      one function per command, from a user's log to a record
    client        the service as a Python program sees it; the standard library alone
    service       the live gate: takes episodes in, decides, watches what it deployed, rolls it back
    experiments   the paper's studies and ours
    cli           the command line

The public names load on first use, so that `import tidegate` and the command's help do not wait for JAX.
"""

import lazy_loader

__version__ = "0.2.0"
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
