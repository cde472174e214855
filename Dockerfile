# The core, on CPUs:
#   docker build -t capplan .
#   docker run --rm -v "$PWD:/work" -u "$(id -u):$(id -g)" capplan plan scenario.yaml --out out
FROM python:3.13-slim AS build
COPY . /source
# The wheel is built with compiled code of the simulator: the first plan compiles nothing.
RUN python -m venv /opt/capplan && /opt/capplan/bin/pip install --no-cache-dir /source

FROM python:3.13-slim
COPY --from=build /opt/capplan /opt/capplan
RUN useradd --uid 1000 --no-create-home capplan && mkdir -p /work /var/cache/capplan && chown capplan: /work /var/cache/capplan
# What the wheel does not bring compiled, such as another scheduler, is compiled here.
ENV PATH=/opt/capplan/bin:$PATH XDG_CACHE_HOME=/var/cache
USER capplan
WORKDIR /work
ENTRYPOINT ["capplan"]
