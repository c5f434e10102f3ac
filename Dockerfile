# docker build -t kvarena . && docker run --rm -v "$PWD/results:/results" -w /results kvarena run /opt/kvarena/configs/quickstart.json
FROM debian:12-slim
RUN apt-get update && apt-get install -y --no-install-recommends ca-certificates git python3-pip && rm -rf /var/lib/apt/lists/*
ENV KVARENA_HOME=/opt/kvarena-home
COPY . /opt/kvarena
WORKDIR /opt/kvarena
RUN scripts/build release kvarena && cmake --install build/release --prefix /usr/local && rm -rf build
ENTRYPOINT ["kvarena"]
