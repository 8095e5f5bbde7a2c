"""The page: gates, decisions and the audit log for people, written by the server, without a script.

    page          the routes together; errors in the same dress
    signing       sign in, sign out
    overview      the list of gates; the style sheet and the icon
    one_gate      a gate, its roll back, its evaluations
    decisions     an evaluation, its report, its approval
    trail         the audit log

What they stand on:

    visitors      who looks: cookie, form token, origin, scope
    sessions      sign-ins in the store, by hash
    answering     a template -> an answer with its security headers; the message after a form
    views         what the pages show of a gate, and what it waits for
    history       the advantage over time, what happened beside it, which policy ran
    chart         a history as shapes; the template draws them
    entries       the audit log, newest first, in words
    wording       how moments, numbers and states are said
"""
