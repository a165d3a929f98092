# docker build -t monoscribe . && docker run -p 8000:8000 monoscribe
# The image runs on the processor. For a small one, give TORCH_INDEX the package index of PyTorch's CPU builds; for a GPU, that of
# the CUDA version that your driver supports. Without it, pip's own index decides.
ARG PYTHON=3.11

FROM python:${PYTHON}-slim AS build
ARG TORCH_INDEX=""
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
RUN python -m venv /opt/monoscribe \
    && if [ -n "$TORCH_INDEX" ]; then /opt/monoscribe/bin/pip install torch==2.13.0 --index-url "$TORCH_INDEX"; fi
WORKDIR /src
COPY pyproject.toml README.md LICENSE monoscribe.py ./
COPY model model
COPY training training
COPY server server
COPY client client
RUN /opt/monoscribe/bin/pip install ".[serve]"

FROM python:${PYTHON}-slim
LABEL org.opencontainers.image.title="Monoscribe" org.opencontainers.image.licenses="Apache-2.0"
RUN useradd --uid 10001 --no-create-home --shell /usr/sbin/nologin monoscribe
COPY --from=build /opt/monoscribe /opt/monoscribe
# One thread per process: many streams in one batch fill a core better than one stream on many threads.
ENV PATH=/opt/monoscribe/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 OMP_NUM_THREADS=1 \
    MONOSCRIBE_HOST=0.0.0.0 MONOSCRIBE_PORT=8000 MONOSCRIBE_LOG_FORMAT=json
USER 10001
WORKDIR /tmp
EXPOSE 8000
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=3 \
    CMD ["python", "-c", "import os, urllib.request as r; r.urlopen('http://127.0.0.1:' + os.environ['MONOSCRIBE_PORT'] + '/healthz', timeout=4)"]
# SIGTERM drains: new sessions are refused, open ones may end within drain_seconds (20). Docker kills after 10 s unless it is told
# to wait longer: docker stop --time 30.
STOPSIGNAL SIGTERM
ENTRYPOINT ["monoscribe"]
CMD ["serve"]
