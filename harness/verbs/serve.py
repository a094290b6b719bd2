"""The verb `serve`: XProf's own pages for the captures of a log directory."""

from argparse import Namespace
from collections.abc import Sequence

from harness.shell.parser import Parser
from harness.shell.verb import Verb
from harness.workbench.profiles import remote
from harness.workbench.profiles.places import PROFILE_DATA


class Serve(Verb):
    place = "profile", 60
    line = "XProf's own pages for the captures"
    example = "serve --port 8791"
    description = (
        "Serves XProf's pages for the captures of a log directory until Ctrl-C. The pages can be read on this machine "
        "only, unless --distributed or arguments for xprof are given."
    )
    examples = "ratchet.sh serve; ratchet.sh serve ./profile_data --port 8792"

    def configure(self, parser: Parser) -> None:
        parser.word("log_directory", f"a log directory, also gs:// (default: {PROFILE_DATA} of the contest)")
        parser.add_argument("--port", type=int, default=remote.PORT, help=f"the port ({remote.PORT}; 0: any free one)")
        parser.flag(
            "--distributed",
            "start xprof itself, which listens on all interfaces, and pass every further argument to it "
            "(--grpc_port=50051 on workers, --worker_service_address=host1:50051,... on the viewer)",
        )

    def parse(self, words: Sequence[str]) -> Namespace:
        arguments, rest = self.parser().parse_known_args(words)
        return Namespace(**vars(arguments), rest=rest)
