# Two commands do everything on a fresh machine: `make demo` and `make test`. `make help` lists the rest.

CARGO ?= cargo
RESULTS ?= results
UPSTREAM = $(or $(CARGO_TARGET_DIR),target)/upstream
LAB = $(or $(CARGO_TARGET_DIR),target)/release/freshwire-lab
# How long `make fuzz` gives each property test, in milliseconds.
FUZZ_MS ?= 60000

.PHONY: help demo test test-rest test-all check build install-demo install-test fuzz memory worlds scenes held-out soak-values soak-tree relays lab frames matrix-thesis matrix-full matrix-a1 matrix-video matrix-share matrix-state bench evidence-hosts matrix-fair matrix-buffers matrix-packets kernel-share evidence evidence-short clean \
	packages packages-test packages-twice install-packages install-packages-test test-root documents neighbours \
	test-kernel test-kernel-compile test-kernel-long test-kernel-loads test-kernel-debug kernel-experiment kernel-costs kernel-push
.NOTPARALLEL:

help:
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 24

demo: install-demo build ## live video over a bad link, plain TCP beside Freshwire; writes report.html
	$(LAB) demo $(DEMO_ARGS)

test: install-test ## the product: crates, bindings, host; 35 minutes the first time on two processors
	$(CARGO) xtask test --product

test-rest: install-test ## what `make test-all` adds: laboratory, guests with other kernels, browsers, lints, long runs; half an hour after `make test`
	$(CARGO) xtask test --rest

test-all: test test-rest ## every check and test

check: ## only the rules of the workspace: dependencies, sizes, unsafe code, cited rules, texts
	$(CARGO) xtask check

test-kernel: install-test ## the kernel modules in guests with stock kernels; some minutes, no root
	$(CARGO) xtask test kernel experiment

test-kernel-compile: install-test ## the kernel modules built for every kernel that Debian and its backports have; minutes
	host/kernel/guest/compile.sh

test-kernel-long: install-test ## the same with more repetitions; a quarter of an hour
	host/kernel/guest/test.sh --long

test-kernel-loads: install-test ## packet push's module loaded, used and unloaded 1,000 times in each stock kernel; half an hour for 6.12, not completed on 6.1 and 7.3
	host/kernel/guest/test.sh --loads

test-kernel-debug: install-test ## the same under lockdep, KASAN, kmemleak and KCSAN; builds two kernels first, hours
	host/kernel/guest/debug-test.sh

build: ## the commands freshwire, freshwire-host and freshwire-lab
	$(CARGO) build --release --locked --package freshwire-cli --package freshwire-host --package freshwire-lab

# Steps of packaging/build.sh, by default all: `make packages STEPS="binaries library"` makes the C library's packages.
STEPS ?=

packages: ## packages for Debian, the wheel, the crates, or STEPS of them; in target/packages; says first how long it takes
	@packaging/build.sh --install $(STEPS)

packages-test: install-packages-test packages ## installs the packages in a clean Debian without Rust, uses them there, and runs the steps of the Dockerfile; root
	packaging/test.sh
	packaging/docker/test.py

test-root: install-packages-test ## the installation of `make test` in a clean Debian, each requirement asked for, every block of the documents run; root
	packaging/root.sh

documents: install-test ## every block of code in the documents, the slow ones too
	xtask/documents.py --long

# Of the versions in xtask/neighbours/go.mod; needs Go 1.25.
neighbours: ## builds go2rtc for the commands of docs/neighbours.md; `make documents` then runs them; minutes
	cd xtask/neighbours && CGO_ENABLED=0 go build -o "$(abspath $(or $(CARGO_TARGET_DIR),target))/neighbours/go2rtc" github.com/AlexxIT/go2rtc

packages-twice: install-packages ## builds the packages twice in different folders and compares them byte by byte
	packaging/twice.sh

install-packages:
	@xtask/install.sh packages

install-packages-test:
	@xtask/install.sh packages-test

install-demo:
	@xtask/install.sh demo

install-test:
	@xtask/install.sh test

fuzz: ## every property test for FUZZ_MS milliseconds
	BOLERO_RANDOM_TEST_TIME_MS=$(FUZZ_MS) BOLERO_RANDOM_ITERATIONS=1000000000 $(CARGO) test --release --workspace --features freshwire-cli/moq

# Records through Python and C in `make memory`; a hundredth of them in `make test`.
MEMORY_RECORDS ?= 100000000

memory: install-test ## memory and references over MEMORY_RECORDS records through Python and C; ten minutes
	FRESHWIRE_MEMORY_RECORDS=$(MEMORY_RECORDS) FRESHWIRE_PROFILE=release xtask/python.sh -k test_memory
	FRESHWIRE_MEMORY_RECORDS=$(MEMORY_RECORDS) $(CARGO) test --release --package freshwire-c --test conversation -- memory

worlds: ## random worlds of the A1 transport for FUZZ_MS milliseconds, every record checked, and each scenario with 200 seeds
	BOLERO_RANDOM_TEST_TIME_MS=$(FUZZ_MS) BOLERO_RANDOM_ITERATIONS=1000000000 SIM_SEEDS=200 \
		$(CARGO) test --release --package freshwire-sim --no-fail-fast -- --nocapture

scenes: ## the congestion control over the tuning grid in virtual time: crowds, shares, random loss; two minutes
	SCENES=all $(CARGO) test --release --package freshwire-a1 --lib scenes::tuning -- --nocapture --test-threads 1

held-out: ## the same over the grid that nothing is tuned on; the published figures
	SCENES=all $(CARGO) test --release --package freshwire-a1 --lib scenes::held_out -- --nocapture --test-threads 1

soak-values: ## memory of the live server with 300 readers of values, a tenth of them slow, for SOAK_SECONDS (300)
	FRESHWIRE_CROWD_SECONDS=$(or $(SOAK_SECONDS),300) \
		$(CARGO) test --release --package freshwire-cli --test serve many_readers_of_values -- --nocapture

soak-tree: ## viewers come and go at a tree of relays and edges, with a fault each minute, for SOAK_SECONDS (3600)
	FRESHWIRE_CHURN_SECONDS=$(or $(SOAK_SECONDS),3600) \
		$(CARGO) test --workspace --features freshwire-cli/moq --test relays viewers_come_and_go -- --nocapture

relays: install-test ## upstream's relay and command line beside ours, by versions of both families of drafts; builds them first, twenty minutes
	CARGO_TARGET_DIR=$(UPSTREAM)/target $(CARGO) install --debug --root $(UPSTREAM) moq-relay --version =0.17.10
	CARGO_TARGET_DIR=$(UPSTREAM)/target $(CARGO) install --debug --root $(UPSTREAM) moq-cli --version =0.14.10
	FRESHWIRE_UPSTREAM=$(abspath $(UPSTREAM)/bin) \
		$(CARGO) test --workspace --features freshwire-cli/moq --test relays -- --ignored --nocapture

evidence: install-test build ## each table and figure of the five publications, measured again and shown beside it; hours, can be taken up again
	$(LAB) evidence --out $(RESULTS)/evidence $(EVIDENCE_ARGS)

evidence-short: build ## the same with short runs, without guests; minutes
	$(LAB) evidence --short --out $(RESULTS)/evidence-short $(EVIDENCE_ARGS)

lab: build ## the layered-video experiment with its default link
	$(LAB) layers --out $(RESULTS)/layers

frames: build ## whole frames on time, on a link below their rate and over a dip
	$(LAB) frames --out $(RESULTS)/frames

matrix-thesis: build ## the four published configurations, ten times each
	$(LAB) layers --matrix thesis --out $(RESULTS)/thesis

matrix-a1: build ## A1 beside TCP, SRT, SCTP and QUIC on every link; an hour
	$(LAB) layers --matrix full --scheme tcp,freshwire,a1,srt,sctp,quic --congestion bbr --out $(RESULTS)/a1

matrix-video: build ## real film in spatial and temporal layers across four links, decoded; needs libvpx-dev; half an hour
	$(LAB) video --video bikes,film --repeat 3 --out $(RESULTS)/video

matrix-share: build ## A1 beside CUBIC and BBR of this kernel on shared links; most of an hour
	$(LAB) share --rate 2Mbit,10Mbit,50Mbit --delay 20ms,50ms --queue 1bdp,15000 --out $(RESULTS)/share

FAIR = freshwire-cubic+cubic,2*freshwire-cubic+cubic,4*freshwire-cubic+cubic,freshwire-cubic+bbr,freshwire-bbr+cubic,freshwire-bbr+bbr
FAIR_A1 = a1+cubic,2*a1+cubic,4*a1+cubic,a1+bbr,2*a1+bbr,4*a1+bbr
matrix-fair: build ## Freshwire over TCP and A1 beside plain TCP, and plain TCP in their place; hours
	$(LAB) share --in-place --flows '$(FAIR),$(FAIR_A1)' --rate 1Mbit,10Mbit,100Mbit --delay 5ms,20ms,50ms \
		--queue 15000,1bdp,4bdp --duration 40s --repeat 3 --out $(RESULTS)/fair

matrix-buffers: build ## send buffers that follow the congestion window: time from socket to socket, and throughput; ten minutes
	$(LAB) layers --scheme tcp,min-buf-1-0,min-buf-1-3,min-buf-2-0,freshwire --rate 512Kibit --loss 0 --delay 50ms --packet-size 1024 \
		--congestion reno,cubic --repeat 5 --out $(RESULTS)/buffers

matrix-packets: build ## the thesis's rule with smaller packets, beside plain TCP; half an hour
	$(LAB) layers --matrix thesis --scheme tcp,thesis --packet-size 512,1024,2048,4096,8192,16384 --repeat 3 --out $(RESULTS)/packets

matrix-state: build ## how old state is at fast, slow, stalled and bursty readers, on slow links and on loopback; half an hour
	$(LAB) state --rate 200kbit,loopback --loss 0,1% --congestion cubic,bbr --reader fast,slow,stalled,bursts \
		--repeat 3 --out $(RESULTS)/state

matrix-full: build ## every rate, loss and delay; takes hours, can be interrupted and taken up again
	$(LAB) layers --matrix full --out $(RESULTS)/full

evidence-hosts: build ## freshness, throughput and processor time between two machines: A=user@host B=user@host
	@[ -n "$(A)" ] && [ -n "$(B)" ] || { echo "usage: make evidence-hosts A=user@host B=user@host [HOSTS_ARGS=--help]" >&2; exit 2; }
	PYTHONPATH=research/python python3 -m freshwire_lab.hosts --command $(dir $(LAB))freshwire --out $(RESULTS)/hosts $(HOSTS_ARGS) $(A) $(B)

kernel-share: install-test ## flows of the kernel ring beside plain TCP, in a guest, and plain TCP in their place; an hour
	host/kernel/experiment/share.sh --out $(RESULTS)/kernel-share

kernel-experiment: install-test build ## the layered-video experiment with netem in a guest: TCP, kernel ring, SCTP; an hour
	host/kernel/experiment/run.sh --out $(RESULTS)/kernel-experiment

kernel-costs: install-test ## what the kernel ring costs beside send(), in a guest; half an hour
	host/kernel/experiment/costs.sh --out $(RESULTS)/kernel-costs

kernel-push: install-test ## packet push beside recv(), in a guest: calls, saw-tooth, stalls; an hour
	host/kernel/experiment/push.sh --out $(RESULTS)/kernel-push

bench: build ## costs per record and per connection
	$(LAB) bench

clean: ## delete what was built; results stay
	$(CARGO) clean
