"""`whale export` and `whale serve`: a run's pair in use."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from whale.alternation.run_folder import RunFolder
from whale.cli.output import print_json, print_text, printable
from whale.cli.progress import reporter
from whale.errors import CorruptLogError, UsageError

if TYPE_CHECKING:
    from whale.pair.served import Served


def export(run: str, output: Path | None, harness: str | None, cycle: int | None, json: bool) -> None:
    """Write the pair, and say where and what it scored."""
    from whale.events import CorruptLog, UnknownEvent
    from whale.pair.choice import choose
    from whale.pair.export import export as write
    from whale.report.results import read_results

    folder = RunFolder.find(run)
    log = folder.open_log(readonly=True)
    try:
        results, head = read_results(log), log.verify()
    except (CorruptLog, UnknownEvent) as error:
        raise CorruptLogError(f"{folder.log_place}: {error}") from error
    finally:
        log.close()
    pair = choose(results, cycle=cycle, harness=named_harness(folder, harness) if harness else None)
    target = output or Path(f"{folder.name}-pair")
    record = write(folder, results, (head.position, head.hash), target, pair, harness_files(folder, pair.tree))
    if json:
        import msgspec

        print_json({"folder": str(target), **msgspec.to_builtins(record)})
        return
    print_text(f"{target}: {folder.name}, harness {pair.candidate} with the weights of cycle {pair.cycle}")
    for one in record.measured:
        print_text(f"  {one.split}: {100 * one.success:.1f} % [{100 * one.low:.1f}, {100 * one.high:.1f}], n = {one.n}")
    if not record.measured:
        print_text("  never evaluated: the harness was not measured under these weights")
    print_text(f"`whale serve {target}` answers with it")


def named_harness(folder: RunFolder, name: str) -> tuple[str, str]:
    """(candidate, tree) of a harness by any of its names."""
    from whale.harness_repo import HarnessRepo, RepoError

    try:
        with HarnessRepo.open(folder.harnesses) as repo:
            tree = repo.tree_id(name)
            known = repo.candidates_with(tree)
    except RepoError as error:
        raise UsageError(f"{folder.name}: {error}") from error
    return (name if name in known or not known else known[0]), tree


def harness_files(folder: RunFolder, tree: str) -> dict[str, bytes]:
    """A harness's tree, from Git."""
    from whale.harness_repo import HarnessRepo, RepoError

    try:
        with HarnessRepo.open(folder.harnesses) as repo:
            return repo.files(tree)
    except RepoError as error:
        raise CorruptLogError(f"{folder.harnesses}: {error}") from error


def serve(
    target: str,
    host: str,
    port: int,
    token: str | None,
    harness: str | None,
    cycle: int | None,
    batch: int,
    last_only: bool,
    quiet: bool,
) -> None:
    """Answer until interrupted."""
    token = token or os.environ.get("WHALE_SERVE_TOKEN") or None
    try:
        from aiohttp import web
    except ImportError:
        raise UsageError("whale serve needs aiohttp: pip install 'whale-evolve[serve]'") from None
    from whale.alternation.progress import Silent
    from whale.pair import bundle
    from whale.pair.question import QuestionForm
    from whale.pair.server import application, bound, check_address

    check_address(host, token)
    if bundle.is_bundle(Path(target)):
        from whale.pair.served import from_bundle

        if harness or cycle is not None:
            raise UsageError(f"{target}: an exported folder has one pair; --harness and --cycle are for a run")
        served = from_bundle(Path(target))
    else:
        served = _of_run(target, harness, cycle)
    QuestionForm.of(served.domain)  # what cannot be served is said before a model is loaded
    with bound(host, port) as listener:
        from whale.pair.answering import Answerer

        answerer = Answerer(served, reporter(quiet) or Silent(), batch)
        try:
            answerer.start()
            shown = f"[{host}]" if ":" in host else host
            print(
                f"{printable(served.name)}: http://{shown}:{listener.getsockname()[1]}/v1 (Ctrl-C ends it)",
                file=sys.stderr,
                flush=True,
            )
            web.run_app(application(answerer, token, last_only=last_only), sock=listener, print=None, access_log=None)
        finally:
            answerer.close()


def _of_run(run: str, harness: str | None, cycle: int | None) -> "Served":
    from whale.alternation.movable import present_config
    from whale.pair.choice import choose
    from whale.pair.served import from_run
    from whale.report.tables import folder_results

    folder = RunFolder.find(run)
    results = folder_results(folder)
    pair = choose(results, cycle=cycle, harness=named_harness(folder, harness) if harness else None)
    return from_run(
        folder, results.state, present_config(folder, results.state), pair, harness_files(folder, pair.tree)
    )
