# The service of a model: docker run --publish 8000:8000 --volume ./model:/model:ro bagwise
FROM python:3.12-slim
RUN apt-get update && apt-get install --yes --no-install-recommends libgomp1 && rm -rf /var/lib/apt/lists/* && useradd bagwise
COPY pyproject.toml README.md LICENSE constraints.txt /source/
COPY src /source/src
RUN pip install --no-cache-dir --constraint /source/constraints.txt '/source[serve]' && rm -rf /source
USER bagwise
EXPOSE 8000
CMD ["bagwise", "serve", "/model", "--host", "0.0.0.0"]
