#!/usr/bin/env python3
"""Fetches Apache Kafka's broker from Maven Central, for tests: fetch.py FOLDER

45 jars and a logger, 43 MB, each checked against its SHA-256. What is there already is kept.
"""

import hashlib
import os
import sys
import urllib.request

REPOSITORY = "https://repo1.maven.org/maven2/"
JARS = [
    ("org/hdrhistogram/HdrHistogram/2.2.2/HdrHistogram-2.2.2.jar", "22d1d4316c4ec13a68b559e98c8256d69071593731da96136640f864fa14fad8"),
    ("net/sourceforge/argparse4j/argparse4j/0.7.0/argparse4j-0.7.0.jar", "65ceb669d88f63306c680f8088bbf765bbca72d288a61a03703000076c3d3f56"),
    ("com/github/ben-manes/caffeine/caffeine/3.2.0/caffeine-3.2.0.jar", "ec411dfdf0c03f25218648ce89861630b71680e5858a9a7278ebac8e55cab3d7"),
    ("commons-beanutils/commons-beanutils/1.9.4/commons-beanutils-1.9.4.jar", "7d938c81789028045c08c065e94be75fc280527620d5bd62b519d5838532368a"),
    ("commons-collections/commons-collections/3.2.2/commons-collections-3.2.2.jar", "eeeae917917144a68a741d4c0dff66aa5c5c5fd85593ff217bced3fc8ca783b8"),
    ("commons-digester/commons-digester/2.1/commons-digester-2.1.jar", "e0b2b980a84fc6533c5ce291f1917b32c507f62bcad64198fff44368c2196a3d"),
    ("commons-logging/commons-logging/1.3.2/commons-logging-1.3.2.jar", "6b858424f518015f32bfcd1183a373f4a827d72d026b6031da0c91cf0e8f3489"),
    ("commons-validator/commons-validator/1.9.0/commons-validator-1.9.0.jar", "c3c14748e2d78db58df88808740711bd643b32c45ffa7b8a739f00fb467cd7d7"),
    ("com/dynatrace/hash4j/hash4j/0.22.0/hash4j-0.22.0.jar", "23028a3fd006e530bf495f551083208187cafd8f80624d048eba56442f16a50e"),
    ("com/fasterxml/jackson/core/jackson-annotations/2.19.0/jackson-annotations-2.19.0.jar", "ead60e9cac0e42b57092b9e2d087ff43536e9477d4486ba393037a8cc156cda7"),
    ("com/fasterxml/jackson/core/jackson-core/2.19.0/jackson-core-2.19.0.jar", "da8e859bac94874528116a25f20c68560e4287acbf27628711b8a4f96b028430"),
    ("com/fasterxml/jackson/core/jackson-databind/2.19.0/jackson-databind-2.19.0.jar", "ceda311f476c3b18e1d2b240c94e2dcb9c8d44e70f8afa9facab88bac4ddc03a"),
    ("com/fasterxml/jackson/dataformat/jackson-dataformat-csv/2.19.0/jackson-dataformat-csv-2.19.0.jar", "bec1150426b0616bb488149b952b45a0dcb16d9416b017c38f6455ad9389bc68"),
    ("com/fasterxml/jackson/dataformat/jackson-dataformat-yaml/2.19.0/jackson-dataformat-yaml-2.19.0.jar", "46e54dcbd39d4d12cda18ec9276e7b888e08fc765ea0c77e71662306f0d4abc4"),
    ("com/fasterxml/jackson/datatype/jackson-datatype-jdk8/2.19.0/jackson-datatype-jdk8-2.19.0.jar", "04f1a3f9da8155995dd00098d6847cdb9b7af67f4a3028c94031eff017c8e3e5"),
    ("net/sf/jopt-simple/jopt-simple/5.0.4/jopt-simple-5.0.4.jar", "df26cc58f235f477db07f753ba5a3ab243ebe5789d9f89ecf68dd62ea9a66c28"),
    ("org/bitbucket/b_c/jose4j/0.9.6/jose4j-0.9.6.jar", "7314af50cde9c99e8eaf43eee617a23edcc6bb43036221064355094999d837ef"),
    ("org/jspecify/jspecify/1.0.0/jspecify-1.0.0.jar", "1fad6e6be7557781e4d33729d49ae1cdc8fdda6fe477bb0cc68ce351eafdfbab"),
    ("org/apache/kafka/kafka-clients/4.1.0/kafka-clients-4.1.0.jar", "eb74709dc3be35e06208827860c87a94872e8a4b00f466880670785c85a20627"),
    ("org/apache/kafka/kafka-coordinator-common/4.1.0/kafka-coordinator-common-4.1.0.jar", "ceb4fac769379576d0901ab7d016bd886d91b0285a5a851183a49e0c735c182e"),
    ("org/apache/kafka/kafka-group-coordinator/4.1.0/kafka-group-coordinator-4.1.0.jar", "b2528196721c9e3c675c0e214d68a1a6e6c5b489f491b3a52ced850b066dfcae"),
    ("org/apache/kafka/kafka-group-coordinator-api/4.1.0/kafka-group-coordinator-api-4.1.0.jar", "526002cced845e759f0d31ae19f27e2b962caf832d2214eba97e1629b7454c26"),
    ("org/apache/kafka/kafka-metadata/4.1.0/kafka-metadata-4.1.0.jar", "d11d14a04391776f0d52dcebcdc4cc7438495984cd5213b62c0e70dc8b81e2fc"),
    ("org/apache/kafka/kafka-raft/4.1.0/kafka-raft-4.1.0.jar", "0d56f0f0735be4fd2c25da02034ae2d7dd0764298cef7d197e99cb8650e1bb1a"),
    ("org/apache/kafka/kafka-server/4.1.0/kafka-server-4.1.0.jar", "fb7765a18b46b6635eae385fb1d890955aa67960aa408d5dfe48c17f2d400b9a"),
    ("org/apache/kafka/kafka-server-common/4.1.0/kafka-server-common-4.1.0.jar", "73b8b467597429cc0f3c959b0bb1181556071aaab13a6240b9877a37a8c312d0"),
    ("org/apache/kafka/kafka-share-coordinator/4.1.0/kafka-share-coordinator-4.1.0.jar", "4c6532e878cc0fccad8b1c60b99ecf69d8b94b55beeee57f5546ad4dba5965e5"),
    ("org/apache/kafka/kafka-storage/4.1.0/kafka-storage-4.1.0.jar", "d4b5cebcd9aeeb2db68b6ff3922bf08e776bb7d4c90f1045768267192625c810"),
    ("org/apache/kafka/kafka-storage-api/4.1.0/kafka-storage-api-4.1.0.jar", "d8bb549e8c2bbb9bef4078983e9e4bb63f71e305fd07703cd2798cb7064903df"),
    ("org/apache/kafka/kafka-tools-api/4.1.0/kafka-tools-api-4.1.0.jar", "2127f95153a53b8b4fc46e90e08a0b6c0d40f9faee386fff17ab0c3882e881ba"),
    ("org/apache/kafka/kafka-transaction-coordinator/4.1.0/kafka-transaction-coordinator-4.1.0.jar", "b55df4f4500ddab992648326d8d0854a386215646f7ca6982dcd939ebb1d2630"),
    ("org/apache/kafka/kafka_2.13/4.1.0/kafka_2.13-4.1.0.jar", "0de0471a4c7a9e734c166822a26a4bb064eb81cb2c7a8b1345912cad78997a7b"),
    ("org/apache/logging/log4j/log4j-api/2.24.3/log4j-api-2.24.3.jar", "5b4a0a0cd0e751ded431c162442bdbdd53328d1f8bb2bae5fc1bbeee0f66d80f"),
    ("org/apache/logging/log4j/log4j-core/2.24.3/log4j-core-2.24.3.jar", "7eb4084596ae25bd3c61698e48e8d0ab65a9260758884ed5cbb9c6e55c44a56a"),
    ("org/lz4/lz4-java/1.8.0/lz4-java-1.8.0.jar", "d74a3334fb35195009b338a951f918203d6bbca3d1d359033dc33edd1cadc9ef"),
    ("com/yammer/metrics/metrics-core/2.2.0/metrics-core-2.2.0.jar", "6b7a14a6f34c10f8683f7b5e2f39df0f07b58c7dff0e468ebbc713905c46979c"),
    ("org/pcollections/pcollections/4.0.2/pcollections-4.0.2.jar", "2bbeef5797a241300c4f7513cd546239629ed7deda4fc0c31df90bb95f5f13ef"),
    ("com/google/re2j/re2j/1.8/re2j-1.8.jar", "7b52c72156dd7f98b3237a5b35c1d34fba381b21048c89208913ad80a45dfbd7"),
    ("org/scala-lang/scala-library/2.13.16/scala-library-2.13.16.jar", "1ebb2b6f9e4eb4022497c19b1e1e825019c08514f962aaac197145f88ed730f1"),
    ("com/typesafe/scala-logging/scala-logging_2.13/3.9.5/scala-logging_2.13-3.9.5.jar", "87a3017d3f43e6ace7566fe4c3d615134c6914ff871c8d64bb32ca1d996d0545"),
    ("org/scala-lang/scala-reflect/2.13.16/scala-reflect-2.13.16.jar", "fb49ccd9cac7464486ab993cda20a3c1569d8ef26f052e897577ad2a4970fb1d"),
    ("org/slf4j/slf4j-api/1.7.36/slf4j-api-1.7.36.jar", "d3ef575e3e4979678dc01bf1dcce51021493b4d11fb7f1be8ad982877c16a1c0"),
    ("org/slf4j/slf4j-simple/1.7.36/slf4j-simple-1.7.36.jar", "2f39bed943d624dfa8f4102d0571283a10870b6aa36f197a8a506f147010c10f"),
    ("org/yaml/snakeyaml/2.4/snakeyaml-2.4.jar", "ef779af5d29a9dde8cc70ce0341f5c6f7735e23edff9685ceaa9d35359b7bb7f"),
    ("org/xerial/snappy/snappy-java/1.1.10.7/snappy-java-1.1.10.7.jar", "4c766cb3f855415ee734b2392949a0b6f12a60879334a74518deaf6270d32e36"),
    ("com/github/luben/zstd-jni/1.5.6-10/zstd-jni-1.5.6-10.jar", "b6c3237e24b8252a5a9c3a0e1ae30ef8f323412e74bd358548b7a9e527d676df"),
]


def digest(path):
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    folder = sys.argv[1]
    os.makedirs(folder, exist_ok=True)
    for path, wanted in JARS:
        jar = os.path.join(folder, os.path.basename(path))
        if os.path.exists(jar) and digest(jar) == wanted:
            continue
        with urllib.request.urlopen(REPOSITORY + path, timeout=60) as answer:
            content = answer.read()
        found = hashlib.sha256(content).hexdigest()
        if found != wanted:
            sys.exit(f"{REPOSITORY + path}: SHA-256 is {found}, not {wanted}")
        # A download that breaks off must not look whole.
        with open(jar + ".part", "wb") as file:
            file.write(content)
        os.replace(jar + ".part", jar)


main()
