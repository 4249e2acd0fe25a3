# joem serve in a container, on the CPU:
#   docker build -t joem .
#   docker run --rm -p 127.0.0.1:8000:8000 joem
# With pip's own index, torch comes with CUDA, which takes 5 GB. For a small image, give the index of PyTorch's CPU
# builds that the install page of PyTorch names: --build-arg TORCH_INDEX_URL=...
FROM python:3.12-slim AS build
ARG PIP_INDEX_URL
ARG TORCH_INDEX_URL
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
RUN python -m venv /opt/joem
WORKDIR /source
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY src src
RUN if [ -n "$TORCH_INDEX_URL" ]; then \
      /opt/joem/bin/pip install --index-url "$TORCH_INDEX_URL" "$(grep '^torch==' constraints.txt)"; \
    fi \
    && /opt/joem/bin/pip install --constraint constraints.txt ".[serve,onnx]"

FROM python:3.12-slim
COPY --from=build /opt/joem /opt/joem
RUN useradd --create-home --uid 10001 joem
USER joem
WORKDIR /home/joem
ENV PATH=/opt/joem/bin:$PATH PYTHONUNBUFFERED=1
EXPOSE 8000
HEALTHCHECK --start-period=60s CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/health', timeout=3)"]
# What is given after the image's name follows: docker run joem --model /models/mine --token-file /run/secrets/token
ENTRYPOINT ["joem", "serve", "--host", "0.0.0.0"]
