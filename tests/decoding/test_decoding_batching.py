"""Blocks, scheduler, clock and paged decoder, and continuous-batching: each request gets the tokens that it gets alone."""

import heapq
import random

import pytest
import torch

from hpml_lab.core.system.errors import LabError
from hpml_lab.decoding.experiments.continuous_batching import SHOWN, SHOWN_SLOTS, continuous_batching
from hpml_lab.decoding.experiments.continuous_batching.policies import (
    CHUNKS,
    CONTINUOUS,
    PREFIX,
    STATIC,
    ServedLoad,
    slot_boxes,
    slots_in_use,
    waiting_trace,
)
from hpml_lab.decoding.experiments.continuous_batching.random_schedules import IntegerNet, decoded_alone, run_schedules
from hpml_lab.decoding.lessons import block_manager
from hpml_lab.decoding.lessons.batch_scheduler import BatchScheduler, DecodingRequest
from hpml_lab.decoding.lessons.block_manager import BlockManager
from hpml_lab.decoding.lessons.decoder import Decoder, DecoderSize, decode_again
from hpml_lab.decoding.lessons.decoding_clock import serve
from hpml_lab.decoding.lessons.paged_decoder import PagedDecoder
from hpml_lab.decoding.views.paging_stepper import FOLLOWED, paging_stepper, paging_steps, where_is

# ---- blocks --------------------------------------------------------------------------------------------------------------


def test_a_table_grows_a_block_at_a_time_and_is_refused_without_a_change():
    manager, table = BlockManager(3, 4), []
    assert manager.extend(table, 4) and table == [0]
    assert manager.extend(table, 5) and table == [0, 1]
    assert not manager.extend(table, 13) and table == [0, 1] and list(manager.free) == [2]
    manager.release(table)
    assert table == [] and list(manager.free) == [2, 1, 0] and manager.references == [0, 0, 0]


def test_full_written_blocks_of_a_prefix_are_found_and_never_all_tokens():
    manager, table, tokens = BlockManager(4, 2), [], [5, 6, 7, 8, 9]
    manager.extend(table, 5)
    assert manager.hits(tokens) == [], "nothing is written yet"
    manager.publish(table, tokens, 0, 3)
    assert manager.hits(tokens) == [0], "the second block is not full"
    manager.publish(table, tokens, 3, 5)
    assert manager.hits(tokens) == manager.hits([5, 6, 7, 8, 1]) == [0, 1]
    assert manager.hits(tokens[:4]) == [0], "the last token is left to compute"
    assert manager.hits([7, 8, 5, 6, 1]) == [], "the same block behind another beginning"
    other = []
    assert manager.extend(other, 6, manager.hits([5, 6, 7, 8, 1, 2])) and other == [0, 1, 3]
    assert manager.references == [2, 2, 1, 1]
    manager.release(table)
    assert manager.references == [1, 1, 0, 1] and list(manager.free) == [2], "the other still needs them"


def test_a_freed_block_is_found_until_it_is_overwritten():
    manager, table = BlockManager(3, 2), []
    manager.extend(table, 4)
    manager.publish(table, [1, 2, 3, 4], 0, 4)
    manager.release(table)
    assert list(manager.free) == [2, 1, 0] and manager.hits([1, 2, 3, 4, 5]) == [0, 1]
    assert not manager.extend([], 8, [0, 1]), "the hits are two of the three free blocks"
    assert manager.extend(table, 3) and table == [2, 1]
    assert manager.hits([1, 2, 3, 4, 5]) == [0], "block 1 holds other tokens now"


BUGS = {
    "a full hit, nano-vllm 144": ("range(self.size, len(tokens), self.size)", "range(self.size, len(tokens) + 1, self.size)"),
    "an old prefix stays, nano-vllm 163": ("self.block_of.pop(self.prefix_of.pop(block, None), None)", "pass"),
    "a block is found before it is full, nano-vllm 208": ("end // self.size)", "-(-end // self.size))"),
    "free hits are not counted, ATOM 902": (" - sum(block in self.free for block in hits)", ""),
    "references are not raised": ("self.references[block] += 1", "self.references[block] = 1"),
    "a hit stays free": ("self.free.pop(block, None)", "pass"),
    "hits behind a gap": ("                break\n", "                continue\n"),
    "a table is one block short": ("-(-tokens // self.size)", "tokens // self.size"),
}


@pytest.mark.parametrize("bug", BUGS)
def test_random_schedules_find_the_fields_bugs(bug):
    right, wrong = BUGS[bug]
    source = open(block_manager.__file__, encoding="utf-8").read()
    assert source.count(right) == 1
    names = {"__name__": "edited"}
    exec(source.replace(right, wrong), names)

    def is_found(seed):
        try:
            found = run_schedules([seed], manager=names["BlockManager"])
        except (IndexError, KeyError, StopIteration, ValueError):
            return True
        return found["other"] + found["broken"] > 0

    assert any(map(is_found, range(1500)))


def test_the_integer_net_reads_every_value_of_a_request():
    request = DecodingRequest([2, 0, 1, 2, 1], 9, table=[1, 0, 2])
    net = IntegerNet(3, 2)
    [first] = net([(request, 0, 5)])
    assert first == decoded_alone([2, 0, 1, 2, 1], 1)[-1]
    request.tokens.append(first)
    assert net([(request, 5, 6)]) == decoded_alone([2, 0, 1, 2, 1], 2)[-1:]
    for block in (0, 1):
        for place in (0, 1):
            kept, net.blocks[block][place] = net.blocks[block][place], 7
            assert net([(request, 5, 6)]) != decoded_alone([2, 0, 1, 2, 1], 2)[-1:]
            net.blocks[block][place] = kept


# ---- schedules -----------------------------------------------------------------------------------------------------------


def parts_of(steps):
    return [[(first, end) for _, first, end in parts] for _, _, parts in steps]


def test_a_long_prompt_is_computed_in_chunks_while_others_decode():
    requests = [DecodingRequest([1, 2], 4), DecodingRequest([3] * 9, 2, arrival=1)]
    whole = serve(BatchScheduler(BlockManager(9, 2), 2), IntegerNet(9, 2), requests)
    assert parts_of(whole.steps) == [[(0, 2)], [(2, 3), (0, 9)], [(3, 4), (9, 10)], [(4, 5)]]
    requests = [DecodingRequest([1, 2], 4), DecodingRequest([3] * 9, 2, arrival=1)]
    chunks = serve(BatchScheduler(BlockManager(9, 2), 2, budget=4), IntegerNet(9, 2), requests)
    assert parts_of(chunks.steps) == [[(0, 2)], [(2, 3), (0, 3)], [(3, 4), (3, 6)], [(4, 5), (6, 9)], [(9, 10)]]
    assert [request.tokens for request in requests] == [decoded_alone([1, 2], 4), decoded_alone([3] * 9, 2)]


def test_the_clock_by_hand():
    requests = [DecodingRequest([1, 2, 3], 2), DecodingRequest([4], 1, arrival=5), DecodingRequest([5, 6], 1, arrival=100)]
    trace = serve(BatchScheduler(BlockManager(8, 2), 2), IntegerNet(8, 2), requests, base=10, per_token=1)
    # the second waits until 13, when it joins the first; the third finds nobody
    assert [(start, end) for start, end, _ in trace.steps] == [(0, 13), (13, 25), (100, 112)]
    assert trace.waits == [13, 20, 12] and trace.throughput == pytest.approx(4 / 112)


def test_the_steps_of_both_policies_by_brute_force():
    batches = [SHOWN[first : first + SHOWN_SLOTS] for first in range(0, len(SHOWN), SHOWN_SLOTS)]
    assert len(waiting_trace(SHOWN, SHOWN_SLOTS, False).steps) == sum(map(max, batches)) == 23
    ends = [0] * SHOWN_SLOTS
    for new in SHOWN:
        heapq.heapreplace(ends, ends[0] + new)
    trace = waiting_trace(SHOWN, SHOWN_SLOTS, True)
    assert len(trace.steps) == max(ends) == 15
    assert slots_in_use(trace, SHOWN_SLOTS) == pytest.approx(100 * sum(SHOWN) / (15 * 4))
    boxes = slot_boxes(trace, SHOWN_SLOTS)
    assert len({(slot, step) for slot, step, _ in boxes}) == len(boxes) == sum(SHOWN)
    assert [len({slot for slot, _, number in boxes if number == request}) for request in range(10)] == [1] * 10


def test_what_cannot_be_served_is_refused():
    with pytest.raises(LabError, match="0 blocks for 4 tokens"):
        BlockManager(0, 4)
    manager = BlockManager(2, 4)
    for wrong in (dict(slots=0), dict(slots=2, budget=0)):
        with pytest.raises(LabError, match="compute nothing"):
            BatchScheduler(manager, **wrong)
    for prompt, new in (([], 3), ([1], 0)):
        with pytest.raises(LabError, match="nothing to decode"):
            DecodingRequest(prompt, new)
    scheduler = BatchScheduler(manager, 2)
    scheduler.add(DecodingRequest([1] * 5, 4))  # the keys of its last token are never stored
    with pytest.raises(LabError, match="9 tokens of one request are more than all blocks hold, 8"):
        scheduler.add(DecodingRequest([1] * 5, 5))


def test_a_preempted_request_finds_its_own_blocks_and_computes_the_rest_again():
    """The stepper's schedule, worked out by hand: B shares block 0 with A, C loses its blocks and finds one of them again."""
    steps = paging_steps()
    assert [sorted(step.running) for step in steps] == [["A"], ["A", "B"], ["A", "B", "C"], *[["A", "B"]] * 4, *[["C"]] * 3]
    assert steps[1].running["B"] == (7, 4, 7, [0, 2])
    assert steps[2].running["C"] == (5, 0, 5, [3, 4])
    assert steps[3].waiting == ["C"] and steps[3].running["B"].table == [0, 2, 4]
    assert steps[7].running["C"] == (6, 4, 6, [3, 5])


# ---- the decoder ---------------------------------------------------------------------------------------------------------


def test_paged_batches_decode_what_recomputing_decodes():
    torch.manual_seed(3)
    net = Decoder(DecoderSize(layers=3, heads=4, kv_heads=1, head_dim=8, vocabulary=50, length=40)).double()
    rng = random.Random(3)
    begin = [rng.randrange(50) for _ in range(9)]
    requests = [DecodingRequest(begin[: rng.randint(3, 9)] + [i], rng.randint(2, 12), arrival=i) for i in range(7)]
    scheduler = BatchScheduler(BlockManager(12, 3), 4, budget=7)
    serve(scheduler, PagedDecoder(net, 12, 3), requests)
    assert scheduler.preemptions > 0 and scheduler.hit_tokens > 0
    for request in requests:
        assert request.tokens == decode_again(net, torch.tensor([request.prompt]), request.new)[0].tolist()


# ---- the experiment, and the stepper -------------------------------------------------------------------------------------


def test_the_experiment_is_sound(sound, ran):
    result = ran(continuous_batching.slug)
    sound(result)
    assert result.here("slots in use by the ten requests, static") == pytest.approx(100 * 52 / 92)
    rows = {(row.policy, row.rate): row for row in result.rows(ServedLoad)}
    highest = max(rate for _, rate in rows)
    assert rows[CONTINUOUS, highest].throughput > 2 * rows[STATIC, highest].throughput
    assert rows[PREFIX, highest].first_p50 < rows[CONTINUOUS, highest].first_p50 < rows[STATIC, highest].first_p50 / 10
    assert rows[CHUNKS, highest].longest <= 8.896 < rows[PREFIX, highest].longest


def test_the_stepper_shows_each_step_and_says_where_a_token_is():
    steps = paging_steps()
    ways = [where_is(step, *FOLLOWED) for step in steps]
    assert ways[0] == "not here." and ways[2].endswith("stored at place 0 of block 4.") and ways[3].startswith("in no block")
    assert ways[7].endswith("stored at place 0 of block 5.") and ways[8] == "read from place 0 of block 5."
    widget = paging_stepper()
    slider, _ = widget.children
    pictures = set()
    for value in range(slider.max + 1):
        slider.value = value
        pictures.add(widget.image.value)
    assert slider.max == 9 and len(pictures) == 10
    assert len(widget.frames()["pictures"]) == 10 and "six blocks" in repr(widget)
