"""trust_store.py JAVA STORE: give the Java runtime from PyPI the certificates that this system trusts.

Its own lack a company's certificate authority, which the system's have.
"""

import os
import ssl
import sys
from pathlib import Path

from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

BUNDLES = (
    os.environ.get("SSL_CERT_FILE"),
    ssl.get_default_verify_paths().cafile,
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
)


def main(java: str, store: str) -> None:
    bundle = next((path for path in BUNDLES if path and Path(path).is_file()), None)
    if not bundle:
        return  # Java's own certificates serve
    port = launch_gateway(java_path=java, die_on_exit=True)
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port))
    jvm = gateway.jvm
    keys = jvm.java.security.KeyStore.getInstance("JKS")
    keys.load(None, None)
    x509 = jvm.java.security.cert.CertificateFactory.getInstance("X.509")
    for number, certificate in enumerate(x509.generateCertificates(jvm.java.io.FileInputStream(bundle))):
        keys.setCertificateEntry(str(number), certificate)
    out = jvm.java.io.FileOutputStream(store)
    keys.store(out, gateway.new_array(jvm.char, 0))
    out.close()
    gateway.shutdown()


if __name__ == "__main__":
    main(*sys.argv[1:])
