#!/usr/bin/env bash
# Make a test CA, the SuperLink's certificate and one key per site: bash deploy/keys.sh FOLDER SITES [HOST…]
# For trying out. A real federation takes its certificate from its own CA, and each site makes its own key and sends only
# the .pub file: ssh-keygen -t ecdsa -b 384 -N "" -f site0
set -euo pipefail
if [ $# -lt 2 ]; then
  echo "usage: bash deploy/keys.sh FOLDER SITES [HOST…]   HOST: names the nodes reach the SuperLink by (localhost)" >&2
  exit 1
fi
folder=$1 sites=$2
shift 2
if [ -e "$folder/ca.key" ]; then
  echo "error: $folder holds keys already; nothing is overwritten: choose another folder" >&2
  exit 1
fi
umask 077
mkdir -p "$folder"
cd "$folder"
names="DNS:localhost,IP:127.0.0.1"
for host in "$@"; do
  case $host in *[!0-9.]*) names="$names,DNS:$host" ;; *) names="$names,IP:$host" ;; esac
done
openssl ecparam -name prime256v1 -genkey -noout -out ca.key
openssl req -new -x509 -key ca.key -sha256 -subj "/CN=fedrage test CA" -days 365 -out ca.crt \
  -addext "basicConstraints=critical,CA:TRUE" -addext "keyUsage=critical,keyCertSign,cRLSign"
openssl ecparam -name prime256v1 -genkey -noout -out server.key
openssl req -new -key server.key -subj "/CN=${1:-localhost}" -out server.csr
printf 'subjectAltName=%s\nbasicConstraints=CA:FALSE\nextendedKeyUsage=serverAuth\nkeyUsage=digitalSignature\n' "$names" >server.cnf
openssl x509 -req -in server.csr -CA ca.crt -CAkey ca.key -CAcreateserial -out server.pem -days 365 -sha256 -extfile server.cnf
for ((i = 0; i < sites; i++)); do
  ssh-keygen -q -t ecdsa -b 384 -N "" -C "site$i" -f "site$i" # Flower wants OpenSSH's format
done
rm server.csr server.cnf
echo "made in $folder: ca.crt, server.pem, server.key, $sites site keys"
