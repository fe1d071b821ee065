"""`mitosis job …`: registers the commands of this folder."""

from mitosis.cli import plain_app
from mitosis.cli.job import check, define, diff, graph, runs, schedule, start, stored, watch
from mitosis.cli.registration import register

app = plain_app()


@app.callback()
def job() -> None:
    """Define, start and follow jobs: steps of tasks with an order and parameters."""


register(app, "check")(check.check)
register(app, "schema")(check.schema)
register(app, "define")(define.define)
register(app, "start")(start.start)
register(app, "watch")(watch.watch)
register(app, "runs")(runs.runs)
register(app, "tasks")(runs.tasks)
register(app, "cancel")(runs.cancel)
register(app, "rerun")(start.rerun)
app.add_typer(schedule.app, name="schedule")
register(app, "list")(stored.list_jobs)
register(app, "show")(stored.show)
register(app, "versions")(stored.versions)
register(app, "delete")(stored.delete)
register(app, "graph")(graph.graph)
register(app, "diff")(diff.diff)
