# docker build -t hpml-lab .
# docker run --gpus all --rm -it -p 127.0.0.1:8888:8888 --shm-size=2g hpml-lab
# The CUDA libraries come with torch's wheels; the host needs NVIDIA's driver and its container toolkit only.
FROM python:3.12-slim
RUN apt-get update \
    && apt-get install -y --no-install-recommends fio g++ git graphviz iproute2 make \
    && rm -rf /var/lib/apt/lists/*
RUN useradd --create-home student
USER student
WORKDIR /home/student/hpml-lab
COPY --chown=student . .
RUN make env
EXPOSE 8888
CMD ["make", "lab", "ARGS=--no-browser --ServerApp.ip=0.0.0.0"]
