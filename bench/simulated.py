#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Simulated operations: beside other libraries' algorithms, and beside measured ones.

    bench/simulated.py peers                 allreduce of 100 MB on 2 to 4096 hosts
    bench/simulated.py peers --platform cluster.txt --hosts 2,3,48
    bench/simulated.py measured              on 2, 4 and 8 virtual hosts at 1 Gbit/s (root)

peers: `shoal sim` and SimGrid's SMPI (package libsimgrid-dev) on the same platform, which is
converted to SimGrid's XML. SMPI counts no processor time for long messages, so here they cost our
processors nothing either; our sums still take time, theirs do not. "Open MPI" is SMPI's selector of
that name. SMPI's MPICH selector takes recursive doubling for long messages, and fails in replays,
so that algorithm is named instead; beside it stands Rabenseifner's, which MPICH itself takes.

measured: `shoal bench` on virtual hosts; the platform, four numbers, is fitted to all runs, and
each is compared with its simulated time.

Writes NAME.json and NAME.svg below --out, and a table in Markdown.
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import tempfile
from pathlib import Path

import plot

ROOT = Path(__file__).resolve().parent.parent
# name -> family of the plot, SMPI's algorithm
PEERS = {
    "Open MPI": ("openmpi", "ompi"),
    "MPICH as in SMPI": ("mpich", "rdb"),
    "MPICH": ("mpich", "rab_rdb"),
}
SMPI = [
    "--cfg=network/model:CM02", "--cfg=network/crosstraffic:0",
    "--log=smpi_config.thresh:critical", "--log=smpi_coll.thresh:critical",
    "--log=xbt_cfg.thresh:critical",
]  # fmt: skip
OPERATIONS = ("allreduce", "allgather", "reduce_scatter")
DEADLINE_S = 300
# The shapers of virtual hosts (cmd/shoal/virtual_hosts.c).
BUCKET_S, BUCKET_BYTES_MIN = 1e-3, 80 << 10


def run(words, **settings):
    settings = {"capture_output": True, "text": True, "timeout": DEADLINE_S, **settings}
    result = subprocess.run([str(word) for word in words], check=False, **settings)
    if result.returncode != 0:
        raise SystemExit(f"{words[0]} {words[1]}: {result.stderr.strip()[-500:]}")
    return result.stdout


def shoal_path():
    return Path(os.environ.get("SHOAL_BUILD", ROOT / "build" / "release")).resolve() / "shoal"


# ---- platforms ---------------------------------------------------------------------------------


def read_platform(text):
    """What `shoal sim --print-platform` prints, as far as SimGrid knows it; rates in bytes/s."""
    platform = {"own": {}, "switch": None}
    for line in text.splitlines():
        words = line.split()
        if words[0] == "link" and words[1] == "rate":
            platform["rate"] = float(words[2].removesuffix("gbit")) * 125e6
            platform["latency"] = float(words[4].removesuffix("us")) * 1e-6
        elif words[0] == "link":
            platform["own"][int(words[1])] = float(words[3].removesuffix("gbit")) * 125e6
        elif words[0] == "switch":
            rate, latency = words[3].removesuffix("gbit"), words[5].removesuffix("us")
            platform["switch"] = (int(words[1]), float(rate) * 125e6, float(latency) * 1e-6)
        elif words[0] == "servers" or (words[0] == "ranks" and words[1] != "1"):
            raise SystemExit("peers are simulated with one rank on each host, without servers")
    return platform


def link_pair(name, rate, latency):
    return [
        f'<link id="{name}_{way}" bandwidth="{rate:.0f}Bps" latency="{latency:.9f}s"/>'
        for way in ("up", "down")
    ]


def to_xml(platform, hosts):
    """SimGrid's form: a zone for each switch; latency is shared out over the links of a way."""
    each, uplink_rate, uplink_latency = platform["switch"] or (hosts, 0, 0)
    switches = range(-(-hosts // each))
    lines = ['<?xml version="1.0"?>',
             '<!DOCTYPE platform SYSTEM "https://simgrid.org/simgrid.dtd">',
             '<platform version="4.1">', '<zone id="all" routing="Full">']  # fmt: skip
    for switch in switches:
        inside = range(switch * each, min(hosts, (switch + 1) * each))
        lines.append(f'<zone id="s{switch}" routing="Cluster">')
        lines += [f'<host id="h{host}" speed="1Gf"/>' for host in inside]
        for host in inside:
            rate = platform["own"].get(host, platform["rate"])
            lines += link_pair(f"h{host}", rate, platform["latency"] / 2)
        lines += [f'<host_link id="h{i}" up="h{i}_up" down="h{i}_down"/>' for i in inside]
        lines += [f'<router id="r{switch}"/>', "</zone>"]
    if len(switches) > 1:
        for switch in switches:
            lines += link_pair(f"s{switch}", uplink_rate, uplink_latency / 2)
        lines += [
            f'<zoneRoute src="s{a}" dst="s{b}" gw_src="r{a}" gw_dst="r{b}" symmetrical="NO">'
            f'<link_ctn id="s{a}_up"/><link_ctn id="s{b}_down"/></zoneRoute>'
            for a in switches for b in switches if a != b
        ]  # fmt: skip
    return "\n".join([*lines, "</zone>", "</platform>", ""])


# ---- peers -------------------------------------------------------------------------------------


def simulate_peer(folder, platform, hosts, count, algorithm):
    """Seconds of an allreduce of that many elements of 4 bytes (MPI_INT is type 1)."""
    (folder / "platform.xml").write_text(to_xml(platform, hosts))
    (folder / "hosts").write_text("".join(f"h{i}\n" for i in range(hosts)))
    (folder / "list").write_text("trace\n")
    (folder / "trace").write_text(
        "".join(f"{i} init\n{i} allreduce {count} 0 1\n{i} finalize\n" for i in range(hosts))
    )
    words = ["smpirun", "-np", hosts, "-platform", "platform.xml", "-hostfile", "hosts",
             "-replay", "list", f"--cfg=smpi/allreduce:{algorithm}", *SMPI]  # fmt: skip
    output = run(words, cwd=folder, stderr=subprocess.STDOUT, capture_output=False,
                 stdout=subprocess.PIPE)  # fmt: skip
    return float(re.findall(r"Simulation time ([\d.]+)", output)[-1])


def simulate_ours(folder, arguments):
    base = [] if arguments.platform is None else ["--platform", arguments.platform]
    text = run([shoal_path(), "sim", "--print-platform", *base])
    free = re.sub(r"(?m)^(send|receive) .*$", r"\1 0us 0ns", text)
    (folder / "free.txt").write_text(free)
    words = ["sim", "allreduce", "--platform", folder / "free.txt", "--bytes", arguments.bytes,
             "--hosts", arguments.hosts, "--json"]  # fmt: skip
    rows = json.loads(run([shoal_path(), *words]))["rows"]
    return read_platform(free), {row["hosts"]: row for row in rows}


def compare_peers(arguments):
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        platform, ours = simulate_ours(folder, arguments)
        rows = []
        for hosts, row in ours.items():
            times = {"shoal": row["time_ns"] / 1e9}
            for peer, (_, algorithm) in PEERS.items():
                count = arguments.bytes // 4
                times[peer] = simulate_peer(folder, platform, hosts, count, algorithm)
            rows.append({"hosts": hosts, "algorithm": row["algorithm"],
                         "bound_s": row["bound_ns"] / 1e9, "seconds": times})  # fmt: skip
            print(f"{hosts:5}", *(f"{name} {time * 1e3:.2f} ms" for name, time in times.items()))
    return rows


def peers_table(rows):
    names = ["shoal", *PEERS]
    lines = ["| hosts | bound | " + " | ".join(names) + " |", "|---:|---:|" + "---:|" * len(names)]
    for row in rows:
        times = " | ".join(f"{row['seconds'][name] / row['bound_s']:.3f}" for name in names)
        lines.append(f"| {row['hosts']} | {row['bound_s'] * 1e3:.1f} ms | {times} |")
    return "\n".join(lines) + "\n"


def peers_plot(rows):
    curves = []
    for name, family in [("shoal", "shoal"), *((name, PEERS[name][0]) for name in PEERS)]:
        points = []
        for row in rows:
            times = row["seconds"][name] / row["bound_s"]
            text = f"{name}, {row['hosts']} hosts: {row['seconds'][name] * 1e3:.2f} ms"
            points.append(plot.Point(row["hosts"], times, times, times, text))
        member = sum(curve.family == family for curve in curves)
        curves.append(plot.Curve(name, family, member, points))
    panel = plot.Panel("allreduce, simulated: times the bound, over hosts", curves)
    hosts = [row["hosts"] for row in rows]
    return plot.svg([panel], plot.WIDE, hosts, str, "times the bound over hosts", standalone=True)


# ---- measured ----------------------------------------------------------------------------------


def rate_bits(text):
    """ "1gbit", "200mbit": bits in a second."""
    return float(text[:-4]) * {"gbit": 1e9, "mbit": 1e6}[text[-4:]]


def measure(arguments):
    """Medians over the rounds, as lines of `shoal bench --json`."""
    found = {}
    for _ in range(arguments.rounds):
        for hosts in (2, 4, 8):
            for operation in OPERATIONS:
                words = ["bench", operation, "--virtual-hosts", hosts, "--rate", arguments.rate,
                         "--sizes", arguments.sizes, "--no-roof", "--json"]  # fmt: skip
                for line in run([shoal_path(), *words]).splitlines():
                    row = json.loads(line)
                    found.setdefault((operation, hosts, row["bytes"]), []).append(row)
    for rows in found.values():
        rows[0]["p50_us"] = statistics.median(row["p50_us"] for row in rows)
    return [rows[0] for rows in found.values()]


def compare_measured(arguments):
    rate = rate_bits(arguments.rate)
    bucket = max(int(rate / 8 * BUCKET_S), BUCKET_BYTES_MIN)
    rows = measure(arguments)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "base.txt").write_text(
            f"link rate {0.97 * rate / 1e9}gbit latency 5us\nbucket {bucket}\n"
            f"cores {os.cpu_count()} shared\n"
        )
        lines = [json.dumps(row) for row in rows]
        (folder / "runs.jsonl").write_text("\n".join(lines) + "\n")
        table = run([shoal_path(), "sim", "--calibrate", folder / "runs.jsonl",
                     "--platform", folder / "base.txt"])  # fmt: skip
    within = sum(0.9 <= ratio <= 1.1 for ratio in ratios_of(table, len(rows)))
    return rows, f"# {within} of {len(rows)} within 10 %\n{table}"


def ratios_of(table, count):
    lines = [line for line in table.splitlines() if line.startswith("# ") and line[-1].isdigit()]
    return [float(line.split()[-1]) for line in lines[-count:]]


def measured_plot(rows, table):
    """Simulated time as a multiple of the measured one."""
    ratios = ratios_of(table, len(rows))
    sizes = sorted({row["bytes"] for row in rows})
    panels = []
    for operation in OPERATIONS:
        curves = []
        for member, hosts in enumerate((2, 4, 8)):
            points = [
                plot.Point(row["bytes"], ratio, ratio, ratio, f"{hosts} hosts: {ratio:.3f}")
                for row, ratio in zip(rows, ratios, strict=True)
                if (row["op"], row["hosts"]) == (operation, hosts)
            ]
            curves.append(plot.Curve(f"{hosts} hosts", "shoal", member, points))
        panels.append(plot.Panel(f"{operation}: simulated / measured", curves, height=150))
    label = "simulated time over measured time, by size"
    return plot.svg(panels, plot.WIDE, sizes, lambda size: f"{size >> 10}K", label, standalone=True)


# ---- all together ------------------------------------------------------------------------------


def parse_arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("peers", "measured"))
    parser.add_argument("--platform", type=Path, help="of peers; default 10 Gbit/s and 50 us")
    parser.add_argument("--hosts", default="2:4096", help="of peers (default 2:4096)")
    parser.add_argument("--bytes", type=int, default=100_000_000, help="of peers")
    parser.add_argument("--rate", default="1gbit", help="of virtual hosts (default 1gbit)")
    parser.add_argument("--sizes", default="64K:16M:4", help="measured (default 64K:16M:4)")
    parser.add_argument("--rounds", type=int, default=3, help="measured (default 3)")
    parser.add_argument("--out", type=Path, default=Path("out/simulated"))
    return parser.parse_args()


def main():
    arguments = parse_arguments()
    if arguments.what == "peers":
        rows = compare_peers(arguments)
        table, picture = peers_table(rows), peers_plot(rows)
    else:
        rows, table = compare_measured(arguments)
        picture = measured_plot(rows, table)
    arguments.out.mkdir(parents=True, exist_ok=True)
    (arguments.out / f"{arguments.what}.json").write_text(json.dumps(rows, indent=1) + "\n")
    (arguments.out / f"{arguments.what}.md").write_text(table)
    (arguments.out / f"{arguments.what}.svg").write_text(picture)
    print(table)


if __name__ == "__main__":
    main()
