"""The verb `predict`: the time of a matmul or a collective from shapes and chip."""

from harness import chips
from harness.hardware import DEFAULT_CHIP
from harness.shell.arguments import at_least
from harness.shell.parser import Parser
from harness.shell.tables import TABLES
from harness.shell.verb import Verb

_PREDICTABLE = ("matmul", "collective", "memory", "shapes")


class Predict(Verb):
    place = "profile", 80
    line = "the time of a matmul or a collective from shapes and chip"
    example = "predict matmul X[8192,8192] W[8192,8192]"
    description = (
        "Predicts from shapes, mesh and chip: the time of a `matmul X[..] W[..]` or a `collective KIND`, the `memory` "
        "of training, or global shapes from per-device shapes (`shapes ARRAY...`)."
    )
    examples = (
        "ratchet.sh predict matmul X[32,1024,8192] W[8192,32768] --chip v2 --devices 8; "
        "ratchet.sh predict memory --batch 8 --seq 4096 --layers 32 --d-model 4096 --remat"
    )
    is_watched = True
    document = TABLES
    effect = "reads"

    def configure(self, parser: Parser) -> None:
        parser.choice("what", _PREDICTABLE, "what to predict")
        parser.add_argument(
            "arrays", nargs="*", metavar="ARRAY", help="arrays such as X[32@data,1024,8192], or a collective's kind"
        )
        parser.option("--dtype", "type of arrays whose type is not stated (bf16)")
        parser.chip(f"the chip: {', '.join(chips.names())} ({DEFAULT_CHIP}; `memory` uses none by default)")
        parser.add_argument(
            "--devices", "--chips", type=at_least(1), metavar="N", help="number of devices (default: the mesh's, or 1)"
        )
        parser.option("--mesh A=N,B=M", "sizes of the mesh axes in the arrays, such as `data` in X[32@data,1024]")
        parser.option("--einsum ab,bc->ac", "the product of the two arrays as an einsum")
        parser.option("--bytes 128MiB", "size of a collective's whole array")
        parser.option("--shape ARRAY", "shape of a collective's whole array")
        parser.option("--axis N[,M]", "number of devices along each axis of the torus over which the collective runs")
        parser.option("--groups REPLICA_GROUPS", "devices that take part, as replica_groups of the collective in HLO")
        parser.option("--parameters 7e9", "number of parameters of the model")
        for name, text in (
            ("batch", "sequences in a batch, for activations"),
            ("seq", "tokens in a sequence"),
            ("layers", "layers of a transformer"),
            ("d-model", "width of the model"),
            ("d-ff", "the MLP's width (4 x d-model)"),
            ("heads", "number of heads, if the attention stores its scores (default: it stores none)"),
            ("vocab", "size of the vocabulary, for the logits"),
        ):
            parser.option(f"--{name} N", text, type=at_least(1))
        parser.add_argument(
            "--remat", action="store_const", const=True, help="recompute layers in the backward pass (jax.checkpoint)"
        )
        parser.option("--peak FLOP/s", "peak of one device, instead of the chip's")
        parser.option(
            "--bandwidth B/s", "bandwidth of HBM (for a collective: of a ring, both ways), instead of the chip's"
        )
        parser.json("the tables as JSON")
