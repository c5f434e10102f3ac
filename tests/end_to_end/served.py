"""`kvarena serve` on a random model, for tests of clients. Standard library only."""

import http.client
import json
import pathlib
import signal
import subprocess

import tiny_model


class Server:
    """The program on a random model, on a free port."""

    def __init__(self, kvarena, source, folder, methods, *options):
        folder = pathlib.Path(folder)
        tiny_model.write(folder / "tiny", source)
        words = [word for method in methods for word in ("--method", method)]
        self.process = subprocess.Popen([kvarena, "serve", "--model", str(folder / "tiny"), "--port", "0", *words, *options],
                                        stdout=subprocess.PIPE, text=True)
        self.models = []
        for line in self.process.stdout:
            if line.startswith("http://"):
                self.port = int(line.strip().rsplit(":", 1)[1].split("/")[0])
                break
            self.models.append(line.strip())

    def ask(self, body, path="/v1/completions"):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        try:
            connection.request("POST", path, body if isinstance(body, bytes) else json.dumps(body),
                               {"Content-Type": "application/json"})
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()

    def metrics(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        connection.request("GET", "/metrics")
        lines = connection.getresponse().read().decode().splitlines()
        connection.close()
        return {line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1]) for line in lines if not line.startswith("#")}

    def stop(self):
        """Its exit code after SIGTERM."""
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(60)
        self.process.stdout.close()
        return code

    def resident_mib(self):
        text = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(next(line for line in text.splitlines() if line.startswith("VmRSS")).split()[1]) / 1024
