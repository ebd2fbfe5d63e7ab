# The bot in a container. Build: docker build -t dogwatch .
#
# Nothing outlives a container but its volumes: when the bot ends here, its watchers end with it and
# are told as lost. Where a restart must not touch them, use contrib/dogwatch.service instead.

FROM rust:1.95-bookworm AS build
WORKDIR /src
COPY Cargo.toml Cargo.lock rust-toolchain.toml ./
COPY src src
COPY config config
COPY benches benches
RUN cargo build --release --locked

FROM debian:bookworm-slim
RUN apt-get update \
    && apt-get install -y --no-install-recommends ca-certificates python3-minimal \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --system --uid 10001 --home-dir /var/lib/dogwatch --shell /usr/sbin/nologin dogwatch \
    && install -d -o dogwatch -g dogwatch -m 0700 /var/lib/dogwatch
COPY --from=build /src/target/release/dogwatch /src/target/release/dogwatch-shim /usr/local/bin/
USER dogwatch
VOLUME /var/lib/dogwatch
EXPOSE 7878
# Needs an init as process 1 (docker run --init; compose: init: true): a watcher's supervisor that
# was orphaned is somebody's child.
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s --retries=3 \
    CMD ["python3", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:7878/readyz', timeout=4)"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["dogwatch"]
CMD ["serve", "--config", "/etc/dogwatch/dogwatch.toml"]
