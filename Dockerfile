# One image for head, workers and driver.
FROM rust:1.95-slim-bookworm AS rust

FROM python:3.11-slim-bookworm AS build
COPY --from=rust /usr/local/cargo /usr/local/cargo
COPY --from=rust /usr/local/rustup /usr/local/rustup
ENV PATH=/usr/local/cargo/bin:$PATH RUSTUP_HOME=/usr/local/rustup CARGO_HOME=/usr/local/cargo
RUN apt-get update && apt-get install --yes --no-install-recommends gcc libc6-dev && rm -rf /var/lib/apt/lists/*
WORKDIR /build
COPY . .
RUN python -m venv /opt/dist_bpe && /opt/dist_bpe/bin/pip install --no-cache-dir -c constraints.txt '.[verify,cluster]'

FROM python:3.11-slim-bookworm
COPY --from=build /opt/dist_bpe /opt/dist_bpe
ENV PATH=/opt/dist_bpe/bin:$PATH
RUN useradd --create-home trainer
USER trainer
WORKDIR /home/trainer
CMD ["dist-bpe", "--help"]
