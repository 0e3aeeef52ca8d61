# SPDX-License-Identifier: Apache-2.0
"""Trains tiny on one GPU within a fixed wall-clock time, then puts it on the file's grids, scores it and writes the folder.

    python train.py --out RUN_FOLDER --minutes 16 [--resume]
    python train.py --out RUN_FOLDER --minutes 1 --start-from ../../models/tiny --quant-from 0 --lr 3e-4 --eager --batch 32

The schedule follows elapsed time, so the run always ends: learning rate up over the first updates, then a cosine to zero;
from the share --quant-from of it on, weights are rounded to the shipped grids and activations as in release numerics, straight through.
"""
import argparse
import json
import math
import time
from pathlib import Path

import torch
from torch.utils.data import DataLoader

from config import CONFIG
from data import PackedCorpus
from check_export import check_files, load_folder
from evaluate import evaluate
from export import from_tensors, to_tensors, write_folder
from model import Mode, Runner, Tiny

DRAFT_WEIGHT = 0.3
INDEX_WEIGHT = 0.1
BIAS_STEP = 2e-3  # router balance: how far a selection bias moves an update
ROW = 1024


def learning_rate(peak: float, warmup: int, step: int, done: float) -> float:
    return peak * min(1.0, (step + 1) / warmup) * 0.5 * (1 + math.cos(math.pi * min(done, 1.0)))


def make_optimizer(model: Tiny, fused: bool) -> torch.optim.Optimizer:
    matrices = [p for n, p in model.named_parameters() if p.dim() >= 2 and not n.endswith(("fn", "position_bias", "embed_tokens.weight"))]
    chosen = {id(p) for p in matrices}
    rest = [p for p in model.parameters() if id(p) not in chosen]
    groups = [{"params": matrices, "weight_decay": 0.05}, {"params": rest, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.95), eps=1e-9, fused=fused)


@torch.no_grad()
def balance(model: Tiny, loads: torch.Tensor, scale: float) -> None:
    """Raises the selection bias of experts that got less than their share, lowers the others."""
    for block, load in zip(model.blocks(), loads):
        if not block.mlp.is_hash:
            load = load.float()
            block.mlp.gate.e_score_correction_bias += BIAS_STEP * scale * torch.sign(load.mean() - load)


def save(path: Path, model: Tiny, optimizer: torch.optim.Optimizer, step: int, elapsed: float) -> None:
    part = path.with_suffix(".part")
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step, "elapsed": elapsed}, part)
    part.rename(path)


def finish(model: Tiny, out: Path, device: str, count: int, log) -> None:
    """Round once, for good; evaluate exactly the bytes that are written."""
    tensors = to_tensors(model)
    from_tensors(model, tensors)
    log({"bytes": write_folder(tensors, out / "export")})
    check_files(model, out / "export")
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.set_float32_matmul_precision("highest")
    scores = {}
    modes = {"release": Mode(release=True), "bf16": Mode(), "fp32": Mode(dtype=torch.float32)}
    for name, mode in modes.items():
        scores[name] = evaluate(model, mode, count, device)
        log({"final": name} | {k: v for k, v in scores[name].items() if k != "wrong"})
    (out / "export" / "eval.json").write_text(json.dumps(scores) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=19.0, help="training time, start-up and compilation included")
    parser.add_argument("--batch", type=int, default=64, help="rows of 1024 tokens an update")
    parser.add_argument("--row", type=int, default=ROW)
    parser.add_argument("--workers", type=int, default=14)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=500, help="held-out prompts a class")
    parser.add_argument("--max-steps", type=int, default=10**9)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--eager", action="store_true", help="no torch.compile")
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--start-from", type=Path, help="an exported folder whose weights the run starts with")
    parser.add_argument("--lr", type=float, default=1.5e-3, help="peak learning rate")
    parser.add_argument("--warmup", type=int, default=150, help="updates")
    parser.add_argument("--quant-from", type=float, default=0.78, help="share of the time after which rounding is on")
    args = parser.parse_args()
    start = time.time()
    args.out.mkdir(parents=True, exist_ok=True)
    log_file = (args.out / "log.jsonl").open("a")

    def log(record: dict) -> None:
        line = json.dumps({"t": round(time.time() - start, 1)} | record)
        print(line, flush=True)
        log_file.write(line + "\n")
        log_file.flush()

    on_gpu = args.device.startswith("cuda")
    torch.set_float32_matmul_precision("high")
    torch._dynamo.config.recompile_limit = 64
    loader = iter(DataLoader(PackedCorpus(args.row, args.seed), batch_size=args.batch, num_workers=args.workers, pin_memory=on_gpu, prefetch_factor=4 if args.workers else None))
    model = Tiny(CONFIG, args.seed).to(args.device)
    if args.start_from:
        load_folder(model, args.start_from)
    optimizer = make_optimizer(model, fused=on_gpu)
    step, before = 0, 0.0
    checkpoint = args.out / "checkpoint.pt"
    if args.resume and checkpoint.exists():
        state = torch.load(checkpoint, map_location=args.device, weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        step, before = state["step"], state["elapsed"]
    runner = Runner(model, compiled=not args.eager)
    total = args.minutes * 60

    def fetch() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        ids, doc, weight = (t.to(args.device, non_blocking=True) for t in next(loader))
        return ids.long(), doc.long(), weight.float()

    dtype = torch.bfloat16 if on_gpu else torch.float32
    sums = torch.zeros(4, device=args.device)
    loads = torch.zeros(len(model.blocks()), CONFIG["n_routed_experts"], device=args.device)
    last_log, last_save, since = time.time(), time.time(), 0
    log({"parameters": sum(p.numel() for p in model.parameters()), "start_s": round(time.time() - start, 1)})
    for quantised in () if args.eager else (False, True):  # compiled before the first update: nothing waits or fails later
        ids, doc, weight = fetch()
        main_loss, draft_loss, streams = runner.losses(ids, doc, weight, Mode(quantised, quantised, dtype))
        (main_loss + draft_loss + streams.index_loss).backward()
        optimizer.zero_grad(set_to_none=True)
        log({"compiled": quantised, "loss": round(main_loss.item(), 4)})
    while True:
        done = (before + time.time() - start) / total
        if done >= 1 or step >= args.max_steps:
            break
        quantised = done >= args.quant_from or (args.max_steps < 100 and step >= args.max_steps // 2)
        mode = Mode(weights=quantised, release=quantised, dtype=dtype)
        lr = learning_rate(args.lr, args.warmup, step, done)
        for group in optimizer.param_groups:
            group["lr"] = lr
        ids, doc, weight = fetch()
        main_loss, draft_loss, streams = runner.losses(ids, doc, weight, mode)
        loss = main_loss + DRAFT_WEIGHT * draft_loss + INDEX_WEIGHT * streams.index_loss
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        balance(model, streams.loads, lr / args.lr)
        sums += torch.stack((main_loss.detach(), draft_loss.detach(), streams.index_loss.detach(), norm.detach()))
        loads += streams.loads
        step += 1
        since += 1
        if step in (1, 2, 3, 10, 30) or step % 100 == 0:
            values = (sums / since).tolist()
            seconds = time.time() - last_log
            share = loads / loads.sum(-1, keepdim=True) * loads.shape[1]
            log({"step": step, "done": round(done, 3), "lr": round(lr, 6), "q": quantised, "loss": round(values[0], 4), "draft": round(values[1], 4), "index": round(values[2], 3), "norm": round(values[3], 3), "tok_s": round(since * ids.numel() / seconds), "least": [round(x, 2) for x in share.amin(-1).tolist()]})
            if not math.isfinite(values[0]):
                raise SystemExit("the loss is not finite")
            sums.zero_()
            loads.zero_()
            last_log, since = time.time(), 0
        if time.time() - last_save > 150:
            save(checkpoint, model, optimizer, step, before + time.time() - start)
            scores = evaluate(model, Mode(dtype=dtype), min(64, args.count), args.device)
            log({"step": step} | {k: v for k, v in scores.items() if k != "wrong"})
            last_save = last_log = time.time()
    save(checkpoint, model, optimizer, step, before + time.time() - start)
    if on_gpu:
        log({"peak_gib": torch.cuda.max_memory_allocated() / 2**30})
    finish(model, args.out, args.device, args.count, log)
    log({"finished": True, "steps": step})


if __name__ == "__main__":
    main()
