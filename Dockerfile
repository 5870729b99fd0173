# One image for head, workers and driver. No step depends on the architecture: docker buildx build --platform …
FROM rust:1.95.0-slim-bookworm AS rust

FROM python:3.11.14-slim-bookworm AS build
RUN apt-get update && apt-get install --yes --no-install-recommends gcc libc6-dev && rm -rf /var/lib/apt/lists/*
COPY --from=rust /usr/local/cargo /usr/local/cargo
COPY --from=rust /usr/local/rustup /usr/local/rustup
ENV PATH=/build/tools/bin:/usr/local/cargo/bin:$PATH RUSTUP_HOME=/usr/local/rustup CARGO_HOME=/usr/local/cargo
WORKDIR /build
COPY constraints.txt .
RUN python -m venv tools && pip install --no-cache-dir -c constraints.txt maturin
COPY pyproject.toml README.md LICENSE ./
COPY rust rust
COPY dist_bpe dist_bpe
RUN pip wheel --no-cache-dir --no-deps --no-build-isolation --wheel-dir wheels .
RUN python -m venv /opt/dist_bpe \
    && /opt/dist_bpe/bin/pip install --no-cache-dir -c constraints.txt "$(echo wheels/*.whl)[cluster,remote,verify]"

FROM python:3.11.14-slim-bookworm
# KubeRay's probes ask by wget.
RUN apt-get update && apt-get install --yes --no-install-recommends wget && rm -rf /var/lib/apt/lists/*
RUN useradd --uid 1000 --create-home trainer
COPY --from=build /opt/dist_bpe /opt/dist_bpe
ENV PATH=/opt/dist_bpe/bin:$PATH PYTHONUNBUFFERED=1 RAY_USAGE_STATS_ENABLED=0
USER trainer
WORKDIR /home/trainer
CMD ["dist-bpe", "--help"]
