"""`mitosis job …`: registers the commands of this folder."""

from mitosis.cli import plain_app
from mitosis.cli.job import check, define, diff, graph
from mitosis.cli.registration import register

app = plain_app()


@app.callback()
def job() -> None:
    """Check, draw and compare definitions of jobs: steps of tasks with an order and parameters."""


register(app, "check")(check.check)
register(app, "schema")(check.schema)
register(app, "define")(define.define)
register(app, "graph")(graph.graph)
register(app, "diff")(diff.diff)
