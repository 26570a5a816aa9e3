# An image with `twin` in it: docs/guides/installation.md says how to build and to use it.
FROM python:3.11-slim AS build
WORKDIR /source
RUN python -m venv /opt/twin
ENV PATH=/opt/twin/bin:$PATH PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
COPY constraints.txt ./
RUN pip install --no-deps --constraint constraints.txt --index-url https://download.pytorch.org/whl/cpu torch
COPY pyproject.toml README.md LICENSE cli.py ./
COPY ingest ingest
COPY twin twin
COPY policy policy
COPY replay replay
COPY service service
COPY lab lab
COPY commands commands
COPY configs configs
COPY traces traces
RUN pip install --constraint constraints.txt .

FROM python:3.11-slim
COPY --from=build /opt/twin /opt/twin
RUN useradd --uid 10001 --create-home twin
USER 10001
WORKDIR /home/twin
# Kernels that are compiled are kept in the image; a store and its runs belong on a volume.
ENV PATH=/opt/twin/bin:$PATH NUMBA_CACHE_DIR=/home/twin/kernels TWIN_STORE=/home/twin/store
RUN twin doctor --compile && mkdir store
VOLUME /home/twin/store
HEALTHCHECK --interval=5m --timeout=60s --retries=1 CMD ["twin", "--quiet", "policies"]
ENTRYPOINT ["twin"]
CMD ["--help"]
